"""CoNLL-2003 memorised by one rank-1 head, untrained, skip connections on; only numbers are recorded, never text.

    python benchmarks/conll.py FOLDER [DENSE_PLACES]

FOLDER holds train.txt.gz and valid.txt.gz in CoNLL columns (the data set is not ours to ship). DENSE_PLACES tokens
run through the dense network (all of them when it is 0); every token runs through its O(log m) form.
"""

import sys
import time
from pathlib import Path

from infoflow.construct.rank_one.text import PAPER_ACCURACY, ceilings, memorize_text, read_conll
from infoflow.files import write_json
from infoflow.provenance import provenance

RESULT = Path(__file__).parent / "results" / "conll.json"


def main(folder: Path, dense: int) -> None:
    about = provenance(("numpy", "torch"))
    training, development = read_conll(folder / "train.txt.gz"), read_conll(folder / "valid.txt.gz")
    start = time.perf_counter()
    made = memorize_text(training, dense_places=training.size if dense == 0 else dense)
    seconds = round(time.perf_counter() - start, 2)
    memory = made.memorizer
    result = {
        "sentences": len(training.words),
        "tokens": training.size,
        "types": len(made.index),
        "contexts": memory.contexts.size,
        "merged": memory.contexts.merged,
        "accuracy": made.accuracy,
        "ceilings": ceilings(training),
        "paper": PAPER_ACCURACY,
        "development": made.accuracy_on(development),
        "gap": memory.spread.gap,
        "max_error": memory.max_error,
        "dense_places": memory.dense_places,
        "parameters": memory.parameters(),
        "seconds": seconds,
        "parts": {name: round(value, 2) for name, value in memory.seconds.items()},
    }
    about["command"] = "python conll.py FOLDER" + (f" {dense}" if dense != 4000 else "")
    write_json(RESULT, {"provenance": about, **result})
    print(f"accuracy {made.accuracy:.5f}, order-free ceiling {ceilings(training)['order_free']:.5f}")


if __name__ == "__main__":
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / "train.txt.gz").is_file():
        print("needs a folder with the CoNLL-2003 files train.txt.gz and valid.txt.gz; nothing measured")
        sys.exit(0)
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4000)
