"""What the suite checks of the trainer on a CPU, checked on a GPU, where the suite never runs.

    python benchmarks/cuda_check.py [OUT.json]

Every line says what was compared and how far apart it was; the exit code is 1 if one is too far. Checked: training on
the GPU against training on the CPU in float64 (targets, tasks, one and several layers), the Triton kernel against plain
PyTorch in float32, a run that is stopped and goes on against one that is not, and many short stacks side by side, which
capture their graphs while others replay theirs.
"""

import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from infoflow.architecture import Architecture
from infoflow.files import write_json
from infoflow.provenance import provenance
from infoflow.train.fit import Recipe, Run, fit_many, task_of
from infoflow.train.plan import choose

SHORT = Recipe(samples=2048, validation=512, batch=128, epochs=6, dtype="float64", warm_up=20, rollback=8.0)


def runs(what: str, arch: str, T: int | None, recipe: Recipe = SHORT, seeds: int = 3) -> list[Run]:
    return [Run(task_of(what), Architecture.parse(arch), T, seed, recipe) for seed in range(seeds)]


def curves(asked: list[Run], device: str, **options: object) -> torch.Tensor:
    found = fit_many(asked, device=device, **options)  # type: ignore[arg-type]
    return torch.tensor([result.curve for result in found if result is not None], dtype=torch.float64)


def apart(one: torch.Tensor, two: torch.Tensor) -> float:
    """The largest relative difference of two sets of curves."""
    return float(((one - two).abs() / one.abs().clamp_min(1e-12)).max())


def same_as_cpu(what: str, arch: str, T: int | None) -> Callable[[], float]:
    return lambda: apart(curves(runs(what, arch, T), "cpu"), curves(runs(what, arch, T), "cuda"))


def fused_as_plain() -> float:
    """Float32 for 20 steps: with the Triton kernel, and in float64 without."""
    recipe = SHORT.with_(dtype="float32", epochs=None, steps=20)
    asked = runs("pairwise_max:D=2,d=4,seed=0", "heads=2,2 embed=12,12 width=32,32", 16, recipe)
    assert choose(asked, torch.device("cuda")).kernel.startswith("triton")
    plain = runs("pairwise_max:D=2,d=4,seed=0", "heads=2,2 embed=12,12 width=32,32", 16, recipe.with_(dtype="float64"))
    return apart(curves(plain, "cuda"), curves(asked, "cuda"))


def goes_on_as_if_unbroken() -> float:
    """Stopped every other second until done, in float64 and with a store; against the same without a stop."""
    asked = runs("pairwise_max:D=2,d=4,seed=0", "heads=2,2 embed=12,12 width=32,32", 16, SHORT.with_(epochs=120))
    whole = curves(asked, "cuda")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(40):
            found = fit_many(asked, folder, "cuda", seconds=2.0)
            if all(result is not None for result in found):
                return apart(whole, torch.tensor([r.curve for r in found if r is not None], dtype=torch.float64))
    return float("inf")


def side_by_side() -> float:
    """Twenty-four groups of other shapes in one call, three times; against one group at a time."""
    recipe = SHORT.with_(epochs=None, steps=14, dtype="float32")
    groups = [runs("max_plus_min", f"heads={h} embed={h * n} width={w}", T, recipe)
              for h in (1, 2, 3) for n in (1, 4) for w in (8, 32) for T in (4, 12)]  # fmt: skip
    alone = torch.cat([curves(group, "cuda") for group in groups])
    return max(apart(alone, curves([run for group in groups for run in group], "cuda")) for _ in range(3))


CHECKS: dict[str, tuple[Callable[[], float], float]] = {
    "one layer, float64": (same_as_cpu("sum_of_maxima:D=2,d=3,seed=1", "heads=2 embed=8 width=16", 8), 1e-6),
    "two layers, float64": (same_as_cpu("pairwise_max:D=2,d=3,seed=1", "heads=2,2 embed=8,8 width=16,16", 8), 1e-6),
    "three layers, float64": (same_as_cpu("kth_largest:k=2,d=1", "heads=1,2,1 embed=4,8,4 width=8,8,8", 6), 1e-6),
    "positions, float64": (same_as_cpu("position_sum", "heads=2 embed=8 width=16 positions=additive", 6), 1e-6),
    "task:mqar, float64": (same_as_cpu("task:mqar,pairs=2,symbols=4", "heads=1,1 embed=8,8 width=16,16", None), 1e-6),
    "task:parity, float64": (same_as_cpu("task:parity", "heads=2 embed=8 width=16", None), 1e-6),
    "triton against float64": (fused_as_plain, 2e-2),
    "stopped and gone on": (goes_on_as_if_unbroken, 0.0),
    "24 groups side by side": (side_by_side, 1e-2),
}


def main() -> None:
    found = {}
    for name, (check, allowed) in CHECKS.items():
        began = time.time()
        try:
            difference = check()
        except Exception:
            traceback.print_exc()
            difference = float("inf")
        good = difference <= allowed
        shown = difference if difference < float("inf") else None
        found[name] = {"difference": shown, "allowed": allowed, "good": good}
        print(f"{'ok ' if good else 'BAD'} {name}: {difference:.2e} ({time.time() - began:.1f} s)", flush=True)
    if len(sys.argv) > 1:
        write_json(Path(sys.argv[1]), {"provenance": provenance(), "checks": found})
    sys.exit(0 if all(row["good"] for row in found.values()) else 1)


if __name__ == "__main__":
    main()
