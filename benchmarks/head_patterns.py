"""What every head of a small pretrained model looks at, on one text that the model draws itself: the explorer's Heads.

    python benchmarks/head_patterns.py FOLDER_OF_STORIES260K     writes benchmarks/results/head_patterns.json

A weight is a byte, 255 for 1. Nothing but the model's own text is recorded.
"""

import base64
import sys
from pathlib import Path
from typing import Any

import numpy as np

from infoflow.files import write_json
from infoflow.probes import record
from infoflow.probes.sources import open_source
from infoflow.probes.stories import StoriesTokenizer
from infoflow.probes.tap import Step
from infoflow.probes.texts import batches_of, sampled
from infoflow.provenance import provenance

LENGTH, SEED = 40, 7
RESULT = Path(__file__).parent / "results/head_patterns.json"


def patterns(folder: str) -> dict[str, Any]:
    source = open_source(folder)
    assert source.encoding is not None
    rows = sampled(source.model, source.encoding, 1, LENGTH, SEED)
    found: dict[tuple[int, int], str] = {}

    def keep(step: Step) -> None:
        for head, weights in enumerate(step.weights[0].numpy()):
            picture = np.rint(255 * weights).astype(np.uint8)
            found[step.layer + 1, head + 1] = base64.b64encode(picture.tobytes()).decode("ascii")

    record(source.model, batches_of(rows, source.encoding, 1)).feed(keep)
    tokenizer = StoriesTokenizer(next(Path(folder).glob("tok*.bin")), source.model.config.vocab_size)
    words = [tokenizer.decode([number]) or "start" for number in rows[0]]
    heads = [{"layer": layer, "head": head, "picture": picture} for (layer, head), picture in sorted(found.items())]
    return {"tokens": words, "size": len(words), "heads": heads}


if __name__ == "__main__":
    write_json(RESULT, {"provenance": provenance(("numpy", "torch", "transformers")), "stories": patterns(sys.argv[1])})
