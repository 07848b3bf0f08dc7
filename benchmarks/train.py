"""The speed of the training engine on this machine: eq. (6) with D = 4 on a CPU, D = 2, 4, 6 on a GPU.

Run alone it writes benchmarks/results/train_<device>.json; a folder as first argument changes where.
"""

import sys
from pathlib import Path

import torch

from infoflow.files import write_json
from infoflow.provenance import provenance
from infoflow.train.benchmark import measure


def main(folder: Path) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = {}
    for D in (2, 4, 6) if device.type == "cuda" else (4,):
        found[D] = measure(D, 16, device, quick=False, report=lambda done, what: None)
        rates = ", ".join(f"{name} {value:,.0f}" for name, value in found[D]["rates"].items() if value is not None)
        print(f"D={D}: {rates} model-steps/s; ratio {found[D]['ratio']:.1f}; {found[D]['chosen_text']}", flush=True)
        # Written after each D: a run that is cut short keeps what it has.
        about = {"provenance": provenance(("torch", "triton", "jax", "numpy"))}
        write_json(folder / f"train_{device.type}.json", {"workloads": found, **about})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
