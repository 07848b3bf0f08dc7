"""Draw docs/figures/training_scaling.svg from the recorded benchmarks/results/train_cuda.json."""

import json
from pathlib import Path

from infoflow.report import style

ROOT = Path(__file__).parent.parent


def main() -> None:
    workloads = json.loads((ROOT / "benchmarks/results/train_cuda.json").read_text(encoding="utf-8"))["workloads"]
    figure, axes = style.figure(6.0, 3.4)
    for (D, found), colour, marker in zip(workloads.items(), style.COLOURS, style.MARKERS, strict=False):
        counts = [int(count) for count in found["scaling"]]
        axes.plot(counts, list(found["scaling"].values()), marker=marker, color=colour, label=f"D = {D}, ours")
        axes.axhline(found["rates"]["plain"], color=colour, ls=":", lw=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlabel("models in a stack (dotted: one module per seed, one after the other)")
    axes.set_ylabel("model-steps per second")
    axes.set_title("one H200, eq. (6), T = 64")
    axes.legend()
    style.save(figure, ROOT / "docs/figures/training_scaling", ("svg",))


if __name__ == "__main__":
    main()
