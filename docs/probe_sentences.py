"""The sentences of docs/findings.md that carry numbers, made from the recorded JSON like its tables."""

import textwrap
from collections.abc import Iterable
from typing import Any

Payload = dict[str, Any]
NAMES = {"stories": "story model", "minilm": "sentence encoder", "rxnmapper": "reaction model"}


def paragraph(*sentences: str) -> str:
    return textwrap.fill(" ".join(sentences), 120) + "\n"


def interval(low: float, high: float, digits: int = 3) -> str:
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def all_heads(payload: Payload) -> dict[str, Payload]:
    """The price of one mode everywhere, by mode."""
    return {cost["mode"]: cost for cost in payload["interventions"]["costs"] if cost["scope"] == "all"}


def count_of(payload: Payload) -> int:
    return sum(payload["joint"]["mechanisms"]["heads"])


def whole(payload: Payload, allowed: str) -> Payload:
    """The point of a joint path at which every head is forced."""
    point: Payload = payload["joint"][allowed]["points"][-1]
    return point


def listed(items: Iterable[str]) -> str:
    *rest, last = items
    return f"{', '.join(rest)} and {last}" if rest else last


def worth(payload: Payload) -> str:
    """What deleting attention costs, and the share of it that each mode everywhere gives up."""
    costs, unit = all_heads(payload), payload["interventions"]["unit"]
    lost = costs["deleted"]["cost"]
    names = {"hardmax": "hardmax", "top2": "softmax over the two best keys", "position": "mean patterns by position"}
    names["uniform"] = "uniform attention"
    shares = listed(f"{words} {costs[mode]['cost'] / lost:.0%}" for mode, words in names.items())
    return paragraph(f"Deleting attention costs {lost:.2f} {unit}. Of that, everywhere at once, {shares} are given up.")


def alone(payload: Payload) -> str:
    """Single heads against the joint search at the same budget."""
    cheap, of = payload["single_heads_within_0.01"], count_of(payload)
    unit = payload["interventions"]["unit"]
    joint = payload["joint"]["mechanisms"]["budgets"][0]
    modes = listed(f"{cheap[mode]} as {mode}" for mode in ("hardmax", "top2", "position", "uniform"))
    return paragraph(
        f"Tested alone, of {of} heads {modes} cost at most 0.01 {unit}. Jointly, each head with the best of the three",
        f"mechanisms, {joint['forced']} can be had for {joint['budget']:g} {payload['joint']['mechanisms']['unit']}.",
    )


def covered(payload: Payload) -> str:
    """What the joint search says: every head, a budget of 0.1, the layer covered last, and top2."""
    path = payload["joint"]["mechanisms"]
    full, budget = whole(payload, "mechanisms"), next(b for b in path["budgets"] if b["budget"] == 0.1)
    pairs = whole(payload, "with top2")
    taken = payload["joint"]["with top2"]["budgets"][-1]["modes"].get("top2", 0)
    layers = list(enumerate(zip(budget["by_layer"], path["heads"], strict=True), 1))
    least = min(got / of for _, (got, of) in layers)
    last = listed(f"{layer} ({got} of {of})" for layer, (got, of) in layers if got / of == least)
    return paragraph(
        f"With one mechanism per head the three cover every head at {full['cost']:.3f} {interval(*full['interval'])}",
        f"{path['unit']}, {full['cost'] / path['attention_is_worth']:.0%} of what attention is worth, and",
        f"{budget['forced']} of {budget['of']} heads at a budget of 0.1, where the least covered layer is {last}. If a",
        f"head may keep the ratio of its two best keys (`top2`), all are covered at {pairs['cost']:.3f}",
        f"{interval(*pairs['interval'])}, and {taken} of {budget['of']} take that offer.",
    )


def retrieval(payload: Payload) -> str:
    """The encoder: what deletion costs, and the joint path priced by accuracy."""
    rows = payload["joint"]["mechanisms"]["judged"]
    best, last = min(rows, key=lambda row: row["cost"]), rows[-1]
    return paragraph(
        f"Given one mechanism each, all {last['forced']} heads together change the error rate by {last['cost']:+.3f}",
        f"{interval(*last['interval'])}; the best prefix of the path, {best['forced']} heads, changes it by",
        f"{best['cost']:+.3f} {interval(*best['interval'])} (below 0 is an improvement).",
    )


def transferred(payload: Payload) -> str:
    """How many of the best pairs are nearest neighbours for other encoders too."""
    found = payload["transfer"]
    pairs = int(next(iter(found.values()))["pairs"])
    shares = listed(
        f"{name}: {row['nearest_there']:.0%} (among the ten nearest: {row['among_ten_nearest_there']:.0%})"
        for name, row in found.items()
    )
    return paragraph(
        f"Do they transfer? Of the {pairs} best pairs, so many are a question and its nearest one with another answer",
        f"for another encoder, too. {shares}.",
    )


def misfits(looked: Payload, forced: dict[str, Payload], shuffled: Payload) -> str:
    """What does not fit, counted."""
    mixed, sinks, harder = [], [], []
    for part, name in NAMES.items():
        labels = looked[part]["labels"]
        of = sum(labels.values())
        mixed.append(f"{labels.get('mixed', 0)} of {of} in the {name}")
        sinks.append(f"{labels.get('sink', 0)} of {of} heads of the {name}")
        costs = all_heads(forced[part])
        unit = forced[part]["interventions"]["unit"]
        harder.append(f"{costs['hardmax']['cost']:.3f} against {costs['top2']['cost']:.3f} {unit} in the {name}")
    bullets = [
        f"Heads without a label (`mixed`): {listed(mixed)}. No single mechanism describes their pattern. They can "
        "often be *replaced* by one, which is a different statement; the tables above give its price.",
        unfollowed(shuffled["models"]),
        by_layer(forced["stories"]),
        f"Sinks ({listed(sinks)}) are a mechanism the framework does not have.",
        f"Hardmax is not what training leaves: forced everywhere it costs more than `top2` does, {listed(harder)}.",
    ]
    return "".join(textwrap.fill(f"- {text}", 120, subsequent_indent="  ") + "\n" for text in bullets)


def unfollowed(models: Payload) -> str:
    """What heads labelled `max` do when tokens are shuffled."""
    found = {name: models[part]["by_label"].get("max") for part, name in NAMES.items()}
    rows = [
        f"{row['follows']:.2f} and {row['stays']:.2f} ({row['heads']} heads of the {name})"
        for name, row in found.items()
        if row
    ]
    return (
        "A head labelled `max` should follow its tokens when they are shuffled. Mean correlation of its pattern with "
        f"what the same tokens did before, and with what the same places did: {listed(rows)}. Below one half means "
        "that context or place has a part in the choice: one key, yes, but not the same token wherever it stands "
        "([head labels](head_labels.md))."
    )


def by_layer(payload: Payload) -> str:
    """How many heads of each layer three mechanisms cover."""
    budget = next(b for b in payload["joint"]["mechanisms"]["budgets"] if b["budget"] == 0.1)
    found = f"Heads of the story model covered at 0.1 nats, by layer: {' '.join(map(str, budget['by_layer']))}."
    return f"{found} Where few are, one fetched token per head underestimates what the heads carry."
