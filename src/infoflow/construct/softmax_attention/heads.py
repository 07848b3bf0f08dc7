"""A head with explicit matrices, in the papers' convention: tokens are columns, no beta outside W_K and W_Q.

SoftmaxHead(Z) = W_V Z softmax((W_K Z)' (W_Q Z)) W_O,   softmax over keys, column by column
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.nn.attention import attention


@dataclass(frozen=True)
class SoftmaxHead:
    """W_O acts on the sequence axis from the right; None stands for the identity."""

    W_K: Float[Tensor, "r rows"]
    W_Q: Float[Tensor, "r rows"]
    W_V: Float[Tensor, "out rows"]
    W_O: Float[Tensor, "tokens out_tokens"] | None = None

    def weights(self, Z: Float[Tensor, "... rows tokens"]) -> Float[Tensor, "... tokens tokens"]:
        """Row i holds the attention of query i over the keys."""
        return attention((self.W_Q @ Z).mT, (self.W_K @ Z).mT, (self.W_V @ Z).mT).weights

    def __call__(self, Z: Float[Tensor, "... rows tokens"]) -> Float[Tensor, "... out out_tokens"]:
        values = attention((self.W_Q @ Z).mT, (self.W_K @ Z).mT, (self.W_V @ Z).mT).values.mT
        return values if self.W_O is None else values @ self.W_O

    @property
    def parameters(self) -> int:
        """Entries of all matrices, zeros included."""
        return sum(matrix.numel() for matrix in self._matrices())

    @property
    def nonzeros(self) -> int:
        """Weights that are not zero."""
        return sum(int(torch.count_nonzero(matrix)) for matrix in self._matrices())

    def _matrices(self) -> list[Tensor]:
        return [matrix for matrix in (self.W_K, self.W_Q, self.W_V, self.W_O) if matrix is not None]


def attend(heads: Iterable[SoftmaxHead], Z: Float[Tensor, "... rows tokens"]) -> Float[Tensor, "... out out_tokens"]:
    """The sum over heads: one multi-head attention layer."""
    outputs = [head(Z) for head in heads]
    total = outputs[0]
    for output in outputs[1:]:
        total = total + output
    return total
