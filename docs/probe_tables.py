"""The tables of docs/findings.md, from benchmarks/results/probes_*.json."""

from collections.abc import Callable
from typing import Any

from tables import (
    Recorded,
    Shown,
    Table,
    cells,
    markdown,
    measured,
    number,
    plain,
    probe_file,
    probed,
    registry,
    source,
)

TABLES, table = registry()
NAMES = {"stories": "story model", "minilm": "sentence encoder", "rxnmapper": "reaction model"}


def interval(low: float, high: float, digits: int = 3) -> str:
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def _heads(payload: Recorded) -> Shown:
    """Per layer, how many heads got which label."""
    rows = []
    for layer in range(1, max(head["layer"] for head in payload["heads"]) + 1):
        found = [head["label"] for head in payload["heads"] if head["layer"] == layer]
        rows.append([layer, ", ".join(f"{found.count(x)} {x}" for x in dict.fromkeys(sorted(found)))])
    return ["layer", "heads by label"], rows


def _costs(payload: Recorded) -> Shown:
    forced, cheap = payload["interventions"], payload["single_heads_within_0.01"]
    rows = [["as it is (loss)", number(forced["base"]["loss"]), interval(*forced["base"]["interval"]), ""]]
    for cost in (cost for cost in forced["costs"] if cost["scope"] == "all"):
        alone = f"{cheap[cost['mode']]} of {sum(payload['joint']['mechanisms']['heads'])}"
        rows.append([cost["mode"], f"{cost['cost']:.3f}", interval(*cost["interval"]), alone])
    return ["all heads forced to", f"cost ({forced['unit']})", "95% interval", "single heads within 0.01"], rows


def _joint(payload: Recorded) -> Shown:
    rows = []
    for name, path in payload["joint"].items():
        for found in path["budgets"]:
            modes = ", ".join(f"{count} {mode}" for mode, count in found["modes"].items() if count)
            cost, layers = f"{found['cost']:.3f}", " ".join(map(str, found["by_layer"]))
            share = f"{found['forced']} of {found['of']}"
            rows.append([name, found["budget"], share, cost, interval(*found["interval"]), modes, layers])
    budget = f"budget ({payload['joint']['mechanisms']['unit']})"
    return ["modes allowed", budget, "forced", "held-out cost", "95% interval", "modes", "by layer"], rows


def _recovery(payload: Recorded) -> Shown:
    rows: list[list[Any]] = []
    for layer in sorted({row["layer"] for row in payload["recovery"]}):
        rows.append([layer])
        for rank in (1, 2, "random"):
            found = [row for row in payload["recovery"] if row["layer"] == layer and row["rank"] == rank]
            rows[-1] += [f"{sum(row[key] for row in found) / len(found):.3f}" for key in ("error", "initialized")]
    return ["layer", "argmax", "(untrained)", "second", "(untrained)", "random", "(untrained)"], rows


def _sets(payload: Recorded) -> Shown:
    sets = payload["effective_sets"]
    rows = [
        [layer, number(a["size"]), interval(*a["interval"], 1), number(b["size"]), interval(*b["interval"], 1), c]
        for layer, (a, b, c) in enumerate(zip(sets["patterns"], sets["gradients"], sets["estimate"], strict=True), 1)
    ]
    return ["layer", "from patterns", "interval", "from gradients", "interval", "framework (an estimate)"], rows


def _part_of(name: str, part: str, make: Callable[[Recorded], Shown]) -> Table:
    """A table of one part of a recorded file."""
    return measured(name)(lambda payload: make(payload[part]))


for _part in NAMES:
    TABLES |= {f"probes_{_part}_{make.__name__[1:]}": measured(probe_file(_part))(make) for make in (_costs, _joint)}
    TABLES |= {
        f"probes_{_part}_{make.__name__[1:]}": _part_of(probe_file("heads"), _part, make)
        for make in (_heads, _recovery, _sets)
    }


@table
def probes_summary() -> str:
    """One row per model and set of modes: what attention is worth, and how much of it all heads together keep."""
    rows = []
    for part, name in NAMES.items():
        payload = probed(part)
        for allowed, path in payload["joint"].items():
            lost, last = path["attention_is_worth"], path["points"][-1]
            fiftieth = next(b for b in path["shares_of_attention"] if abs(b["budget"] - lost / 50) < 1e-9)
            low, high = (value / lost for value in last["interval"])
            cost = f"{last['cost']:.3f} {interval(*last['interval'])}"
            share = f"{last['cost'] / lost:.0%} [{low:.0%}, {high:.0%}]"
            heads = f"{' '.join(map(str, fiftieth['by_layer']))} of {path['heads'][0]}"
            rows.append([name, allowed, f"{lost:.2f} {path['unit']}", cost, share, heads])
    head = ["model", "modes allowed", "attention is worth", "all heads forced cost", "of its worth"]
    head += ["heads covered at 2% of its worth, by layer"]
    return markdown(head, rows)


TABLES["probes_planted"] = plain(
    probe_file("planted"),
    "planted heads | T | mask | heads | accuracy",
    "{case} | {T} | {mask} | {heads} | {accuracy:.3f}",
)
TABLES["probes_built"] = plain(
    probe_file("built"),
    "explicit network | T | heads | accuracy | hidden",
    "`{target}` | {T} | {heads} | {plain:.3f} | {hidden:.3f}",
)


@table(probe_file("minilm"))
def probes_judged(payload: Recorded) -> Shown:
    rows = []
    for name, path in payload["joint"].items():
        for row in path["judged"]:
            if row["forced"] % 12 == 0:
                rows.append([name, row["forced"], f"{row['cost']:+.3f}", interval(*row["interval"])])
    return ["modes allowed", "heads forced", "change of error rate", "95% interval"], rows


@table(probe_file("stories"))
def probes_foreign(payload: Recorded) -> Shown:
    rows = []
    for name, found in payload["foreign_texts"].items():
        costs = {c["mode"]: c for c in found["costs"] if c["scope"] == "all"}
        rows.append([name, number(found["base"]["loss"]), *(f"{costs[m]['cost']:+.3f}" for m in costs)])
    return ["text", "loss", *costs], rows


@table(probe_file("collisions"))
def probes_collisions(payload: Recorded) -> Shown:
    best, rates = payload["index"]["best"][0], payload["index"]["per_1000_searches"]
    rows = [
        ["searches (questions)", payload["index"]["searches"]],
        ["best real-text pair: distance", f"{best['distance']:.4f}"],
        ["best real-text pair: gap of the answers", f"{best['gap']:.3f}"],
        *([f"pairs within {radius} per 1,000 searches", number(rate)] for radius, rate in rates.items()),
        ["token swaps that came nearer", f"{payload['swaps']['improved']} of {payload['swaps']['searches']}"],
    ]
    return ["", ""], rows


@table(probe_file("collisions"))
def probes_transfer(payload: Recorded) -> Shown:
    form = (
        "{mean_distance:.3f} | {random_pairs:.3f} | {mean_quantile:.3f} | {nearest_there:.0%} | "
        "{among_ten_nearest_there:.0%}"
    )
    head = ["encoder", "distance of the best pairs", "of random pairs", "quantile", "nearest there"]
    rows = [[name, *cells(form, found)] for name, found in payload["transfer"].items()]
    return [*head, "among ten nearest"], rows


@table
def probes_rivals() -> str:
    payload = probed("rivals")
    worked = payload["over_forward_processor"]
    rows = [
        [name, f"{payload['seconds'][name]:.2f} s", f"{ratio:.2f} x", f"{worked[name]:.2f} x"]
        for name, ratio in payload["over_forward"].items()
    ]
    rows += [[name, why, "", ""] for name, why in payload["not_installed"].items()]
    used = ", ".join(f"{name} {version}" for name, version in payload["provenance"]["versions"].items() if version)
    head = [f"{payload['weights']}, batch 32, length 128", "median", "over the forward pass", "by processor time"]
    apart = f"largest difference of the recorded patterns {payload['largest_difference_of_patterns']:g}"
    more = f"; {used}; load of the machine {payload['load']:.0f}; {apart}</sub>"
    return markdown(head, rows) + source(payload).replace("</sub>", more)


@table(probe_file("speed"))
def probes_speed(payload: Recorded) -> Shown:
    rows = [
        ["labelling, over a forward pass with attention outputs", f"{payload['head_modes_over_forward']:.2f} x"],
        ["one ridge regression, 10^6 positions, E = 384", f"{payload['recovery_million']['seconds']:.1f} s"],
        ["GPT-2-small size: record and intervene, peak memory", f"{payload['gpt2_small']['peak_gib']:.2f} GiB"],
        ["length 512, 32 layers: labelling, peak memory", f"{payload['length_512_layers_32']['peak_gib']:.2f} GiB"],
    ]
    return ["", "measured"], rows
