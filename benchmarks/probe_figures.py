"""Draw the head maps docs/figures/heads_*.svg from the recorded benchmarks/results/probes_heads.json."""

import json
from pathlib import Path

from infoflow.probes.figures import head_map
from infoflow.probes.modes import HeadMode
from infoflow.report import style

ROOT = Path(__file__).parent.parent


def main() -> None:
    recorded = json.loads((ROOT / "benchmarks/results/probes_heads.json").read_text(encoding="utf-8"))
    for name in ("stories", "minilm", "rxnmapper"):
        heads = [
            HeadMode(
                row["layer"] - 1, row["head"] - 1, row["label"], row["scores"], tuple(row["interval"]), row["stability"]
            )
            for row in recorded[name]["heads"]
        ]
        style.save(head_map(heads), ROOT / f"docs/figures/heads_{name}", ("svg",))


if __name__ == "__main__":
    main()
