"""Export to ONNX (extra `onnx`): the same network for other runtimes; the batch size stays free, T is fixed."""

import warnings
from pathlib import Path

import torch

from infoflow.arguments import integer
from infoflow.arguments import path as file_path
from infoflow.cost import memory
from infoflow.errors import InfoFlowError
from infoflow.files import atomic_path
from infoflow.installation import extra
from infoflow.nn.transformer import Transformer
from infoflow.reading import plain

OPSET = 18


def to_onnx(network: Transformer, path: str | Path, T: int) -> Path:
    """Write `network` as an ONNX graph with input `X` (batch, T, d) and output `y`; weights keep their dtype."""
    if network.stack:
        raise InfoFlowError(f"expected one network, got model axes {network.stack}; export select(k).")
    T, path = integer("T", T, 1), plain(file_path("path", path), "an ONNX file")
    onnx = extra("onnx", "onnx", "the export to ONNX")
    memory(6 * max(network.config.heads) * 8 * T**2, f"the attention weights of T={T}", "T")
    example = torch.zeros(2, T, network.config.dim, dtype=next(network.parameters()).dtype)
    # The tracing exporter is the one that takes every network of this class in any dtype; it warns that it is old
    # and that shape checks (Python comparisons of constants) are frozen, both of which are meant.
    with warnings.catch_warnings(), atomic_path(path) as temporary:
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (example,),
            str(temporary),
            input_names=["X"],
            output_names=["y"],
            dynamic_axes={"X": {0: "batch"}, "y": {0: "batch"}},
            opset_version=OPSET,
            dynamo=False,
        )
        onnx.checker.check_model(str(temporary))
    return Path(path)
