"""A built network followed by the user's own outer map.

The Transformer computes the values of the terms; the outer map is the user's function, applied to them as it is (it is
part of the target, not approximated). The certificate multiplies the Transformer's error by the stated Lipschitz
constant and adds the stated error.
"""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from infoflow.certificates import Certificate
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer
from infoflow.targets.target import OuterNetwork, Target


class WithOuter(nn.Module):
    """X (B, T, d) -> outer(values of the terms)."""

    def __init__(self, network: Transformer, target: Target) -> None:
        super().__init__()
        assert isinstance(target.outer, OuterNetwork)
        self.network, self.target, self.outer = network, target, target.outer

    @property
    def certificate(self) -> Certificate:
        """The Transformer's, which already counts the outer map."""
        certificate = self.network.certificate
        assert certificate is not None
        return certificate

    @property
    def header(self) -> dict[str, Any]:
        """The Transformer's."""
        return self.network.header

    @property
    def config(self) -> Any:
        """The Transformer's."""
        return self.network.config

    def values(self, X: Tensor) -> Tensor:
        """What the Transformer hands to the outer map, (B, values)."""
        values: Tensor = self.network(X)
        return values[..., None] if self.network.config.outputs == 1 else values

    def forward(self, X: Tensor) -> Tensor:
        """The user's function of the values the Transformer computes."""
        values = self.values(X)
        result: Tensor = self.outer(values)
        return result[..., 0] if self.outer.outputs == 1 and result.ndim == values.ndim else result

    def save(self, path: str | Path) -> Path:
        """Refused: a function is not tensors."""
        raise InfoFlowError(
            "expected a network that is tensors alone, this one ends in your own function; save .network and apply "
            "the function after loading."
        )
