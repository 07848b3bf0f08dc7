"""Which stored networks a proof speaks of: those of one configuration, in float64.

Every construction is proved for the configuration it writes. Another value in any field makes another function, so
certify refuses it by name instead of judging a formula that the stored network does not compute.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from infoflow.arguments import shown
from infoflow.errors import InfoFlowError
from infoflow.nn import TransformerConfig


def expect_config(stored: TransformerConfig, proved: TransformerConfig, kind: str) -> None:
    """Refuse the first field in which a stored configuration is not the one the proof is about."""
    expect_fields(stored, {each.name: getattr(proved, each.name) for each in fields(proved)}, kind)


def expect_fields(stored: TransformerConfig, proved: dict[str, Any], kind: str) -> None:
    """Refuse a configuration that differs in a field the proof speaks of."""
    for name, wanted in proved.items():
        found = getattr(stored, name)
        if found != wanted:
            raise InfoFlowError(
                f"expected {name}={wanted!r} in the configuration of {kind} (its proof covers no other value), "
                f"got {name}={shown(found)}; build the network again."
            )


def expect_float64(tensors: Iterable[tuple[str, Tensor]]) -> None:
    """A certificate speaks of float64 weights."""
    for name, tensor in tensors:
        if tensor.dtype != torch.float64:
            raise InfoFlowError(
                f"expected float64 in tensor {name!r} (what a certificate speaks of), got {tensor.dtype}; "
                "convert the network with .double() or build it again."
            )
