"""The speed of the training engine on this machine: eq. (6) with D = 4 on a CPU, D = 2, 4, 6 on a GPU.

Run alone it writes benchmarks/results/train_<device>.json; a folder as first argument changes where.
"""

import sys
from pathlib import Path

import torch

from _rivals import jax_vmapped, kernel_errors, stacked_against_separate, vmapped
from infoflow.files import write_json
from infoflow.provenance import provenance
from infoflow.train.folded import Fused
from infoflow.train.plan import LARGEST_STACK, choose
from infoflow.train.speed import batch_of, measure, rate, workload


def rivals(D: int, models: int, device: torch.device) -> dict[str, float | None]:
    """Model-steps per second of vmap and, where it is installed, JAX."""
    seconds = 1.0 if device.type == "cuda" else 3.0
    run = workload(D, 1)[0]
    X, y = batch_of(run, device)
    vmap = rate(*vmapped(run, X, y, models), device, seconds)
    found = jax_vmapped(run, X, y, models)
    return {"vmap": vmap, "jax": rate(*found, device, seconds) if found else None}


def checks(D: int, device: torch.device) -> dict[str, object]:
    """The kernels against float64, and a stack against a model alone, where kernels are used."""
    fused = choose(workload(D, LARGEST_STACK), device).fused
    if fused is None:
        return {"kernel_errors": None, "stacked_against_separate": None}
    errors = {name: kernel_errors(D, device, Fused(name)) for name in ("tf32x3", "ieee", "tf32")}
    return {"kernel_errors": errors, "stacked_against_separate": stacked_against_separate(D, device, fused)}


def main(folder: Path) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = {}
    for D in (2, 4, 6) if device.type == "cuda" else (4,):
        found[D] = measure(D, 16, device, quick=False, report=lambda done, what: None)
        found[D]["rates"] |= rivals(D, 16, device)
        found[D] |= checks(D, device)
        rates = ", ".join(f"{name} {value:,.0f}" for name, value in found[D]["rates"].items() if value is not None)
        print(f"D={D}: {rates} model-steps/s; ratio {found[D]['ratio']:.1f}; {found[D]['chosen_text']}", flush=True)
        # Written after each D: a run that is cut short keeps what it has.
        about = {"provenance": provenance(("torch", "triton", "jax", "numpy"))}
        write_json(folder / f"train_{device.type}.json", {"workloads": found, **about})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
