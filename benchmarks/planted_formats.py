"""Planted networks in other runtimes: every one from its ONNX file, those of one layer in TransformerLens.

    python benchmarks/planted_formats.py [--folder out/planted/seed0] [--every 10]

Runs every so many of the networks of a folder that `benchmarks/planted.py` made and compares outputs with our own;
writes `results/planted_formats.json`. A runtime that is not installed is said to be missing; TransformerLens has had no
`HookedTransformer` since its version 4, so take an earlier one.
"""

import argparse
import copy
import tempfile
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch

from infoflow.files import write_json
from infoflow.probes.benchmark.lens import lens_config, lens_state, lens_stream
from infoflow.probes.benchmark.read import PlantedNetwork, open_benchmark
from infoflow.progress import Progress
from infoflow.provenance import provenance

RESULT = Path(__file__).parent / "results" / "planted_formats.json"
PACKAGES = {"onnx": "onnxruntime", "transformer_lens": "transformer-lens", "float64": "torch"}


def wanted(network: PlantedNetwork) -> torch.Tensor:
    with torch.no_grad():
        y: torch.Tensor = network.model(network.X)
    return y if y.ndim > 1 else y[:, None]


def in_float64(network: PlantedNetwork) -> torch.Tensor:
    """Our own run in float64: what the rounding of float32 alone changes, most where two keys nearly tie."""
    with torch.no_grad():
        y: torch.Tensor = copy.deepcopy(network.model).double()(network.X.double())
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


def has_lens() -> bool:
    try:
        from transformer_lens import HookedTransformer  # noqa: F401
    except ImportError:
        return False
    return True


def installed(name: str) -> str | None:
    try:
        return metadata.version(PACKAGES[name])
    except metadata.PackageNotFoundError:
        return None


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
    found: dict[str, list[float]] = {"onnx": [], "transformer_lens": [], "float64": []}
    benchmark = open_benchmark(options.folder)
    lens = has_lens()
    chosen = list(benchmark)[:: options.every]
    with Progress("other runtimes", len(chosen)) as bar, tempfile.TemporaryDirectory() as folder:
        for done, network in enumerate(chosen, 1):
            y = wanted(network)
            found["onnx"].append(difference(from_onnx(network, Path(folder)), y))
            found["float64"].append(difference(in_float64(network), y.double()))
            if lens and network.model.config.layers == 1:
                found["transformer_lens"].append(difference(from_lens(network), y))
            bar.update(done)
    rows: dict[str, Any] = {
        name: {
            "networks": len(values),
            "median_difference": median(values) if values else None,
            "largest_difference": max(values, default=None),
            "version": installed(name),
        }
        for name, values in found.items()
    }
    write_json(options.out, {"what": "outputs in other runtimes", **rows, "provenance": provenance()})
    print(rows)


if __name__ == "__main__":
    main()
