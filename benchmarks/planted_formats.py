"""Planted networks in other runtimes: every one from its ONNX file, those of one layer in TransformerLens.

    python benchmarks/planted_formats.py [--folder out/planted/seed0] [--every 10]

Runs every so many of the networks of a folder that `benchmarks/planted.py` made and compares outputs with our own;
writes `results/planted_formats.json`. A runtime that is not installed is said to be missing.
"""

import argparse
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import torch

from infoflow.files import write_json
from infoflow.probes.benchmark.lens import lens_config, lens_state, lens_stream
from infoflow.probes.benchmark.read import PlantedNetwork, open_benchmark
from infoflow.progress import Progress
from infoflow.provenance import provenance

RESULT = Path(__file__).parent / "results" / "planted_formats.json"


def wanted(network: PlantedNetwork) -> torch.Tensor:
    with torch.no_grad():
        y: torch.Tensor = network.model(network.X)
    return y if y.ndim > 1 else y[:, None]


def from_onnx(network: PlantedNetwork, folder: Path) -> torch.Tensor:
    import onnxruntime

    from infoflow.nn.export import to_onnx

    path = to_onnx(network.model, folder / "network.onnx", network.X.shape[1])
    (y,) = onnxruntime.InferenceSession(str(path)).run(None, {"X": network.X.numpy()})
    found = torch.from_numpy(y)
    return found if found.ndim > 1 else found[:, None]


def from_lens(network: PlantedNetwork) -> torch.Tensor:
    """The library's own attention between our encoder and our read-out."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    made = HookedTransformer(HookedTransformerConfig(**lens_config(network.model)))
    missing = made.load_state_dict(lens_state(network.model), strict=False)
    assert not missing.unexpected_keys
    x = lens_stream(network.model, network.X)
    with torch.no_grad():
        after = made.blocks[0](x)
        assert network.model.readout is not None
        y: torch.Tensor = network.model.readout(after[:, -1, :-1])
    return y


def difference(found: torch.Tensor, y: torch.Tensor) -> float:
    """The largest one, over the standard deviation of the outputs."""
    return float((found - y).abs().max() / y.std(0).norm().clamp(min=1e-12))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("out/planted/seed0"))
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {"onnx": [], "transformer_lens": []}
    benchmark = open_benchmark(options.folder)
    lens = importlib.util.find_spec("transformer_lens") is not None
    with Progress("other runtimes", len(benchmark)) as bar, tempfile.TemporaryDirectory() as folder:
        for network in list(benchmark)[:: options.every]:
            y = wanted(network)
            found["onnx"].append(difference(from_onnx(network, Path(folder)), y))
            if lens and network.model.config.layers == 1:
                found["transformer_lens"].append(difference(from_lens(network), y))
            bar.update(network.number + 1)
    rows: dict[str, Any] = {
        name: {"networks": len(values), "largest_difference": max(values, default=None)}
        for name, values in found.items()
    }
    write_json(options.out, {"what": "outputs in other runtimes", **rows, "provenance": provenance()})
    print(rows)


if __name__ == "__main__":
    main()
