"""The tables of docs/findings.md, from benchmarks/results/probes_*.json."""

from functools import partial
from typing import Any

from tables import Recorded, Shown, cells, markdown, measured, number, plain, probe_file, probed, registry, source

TABLES, table = registry()
NAMES = {"stories": "story model", "minilm": "sentence encoder", "rxnmapper": "reaction model"}


def interval(low: float, high: float, digits: int = 3) -> str:
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def _labels(payload: dict[str, Any]) -> list[list[str]]:
    """Per layer, how many heads got which label."""
    layers = max(head["layer"] for head in payload["heads"])
    rows = []
    for layer in range(1, layers + 1):
        found = [head["label"] for head in payload["heads"] if head["layer"] == layer]
        rows.append([str(layer), ", ".join(f"{found.count(x)} {x}" for x in dict.fromkeys(sorted(found)))])
    return rows


def _heads_table(part: str) -> str:
    payload = probed("heads")
    return markdown(["layer", "heads by label"], _labels(payload[part])) + source(payload)


def _cost_table(part: str) -> str:
    payload = probed(part)
    forced = payload["interventions"]
    cheap = payload["single_heads_within_0.01"]
    rows = [["as it is (loss)", number(forced["base"]["loss"]), interval(*forced["base"]["interval"]), ""]]
    for cost in forced["costs"]:
        if cost["scope"] == "all":
            alone = f"{cheap[cost['mode']]} of {sum(payload['joint']['mechanisms']['heads'])}"
            rows.append([cost["mode"], f"{cost['cost']:.3f}", interval(*cost["interval"]), alone])
    head = ["all heads forced to", f"cost ({forced['unit']})", "95% interval", "single heads within 0.01"]
    return markdown(head, rows) + source(payload)


def _joint_table(part: str) -> str:
    payload = probed(part)
    rows = []
    for name, path in payload["joint"].items():
        for found in path["budgets"]:
            modes = ", ".join(f"{count} {mode}" for mode, count in found["modes"].items() if count)
            share = f"{found['forced']} of {found['of']}"
            layers = " ".join(map(str, found["by_layer"]))
            rows.append(
                [name, found["budget"], share, f"{found['cost']:.3f}", interval(*found["interval"]), modes, layers]
            )
    unit = payload["joint"]["mechanisms"]["unit"]
    head = ["modes allowed", f"budget ({unit})", "forced", "held-out cost", "95% interval", "modes", "by layer"]
    return markdown(head, rows) + source(payload)


def _recovery_table(part: str) -> str:
    payload = probed("heads")
    rows: list[list[Any]] = []
    layers = sorted({row["layer"] for row in payload[part]["recovery"]})
    for layer in layers:
        cells: list[Any] = [layer]
        for rank in (1, 2, "random"):
            found = [row for row in payload[part]["recovery"] if row["layer"] == layer and row["rank"] == rank]
            for key in ("error", "initialized"):
                cells.append(f"{sum(row[key] for row in found) / len(found):.3f}")
        rows.append(cells)
    head = ["layer", "argmax", "(untrained)", "second", "(untrained)", "random", "(untrained)"]
    return markdown(head, rows) + source(payload)


def _sets_table(part: str) -> str:
    payload = probed("heads")
    sets = payload[part]["effective_sets"]
    rows = [
        [layer, number(a["size"]), interval(*a["interval"], 1), number(b["size"]), interval(*b["interval"], 1), c]
        for layer, (a, b, c) in enumerate(zip(sets["patterns"], sets["gradients"], sets["estimate"], strict=True), 1)
    ]
    head = ["layer", "from patterns", "interval", "from gradients", "interval", "framework (an estimate)"]
    return markdown(head, rows) + source(payload)


for _part in ("stories", "minilm", "rxnmapper"):
    TABLES |= {
        f"probes_{_part}_{_name}": partial(_make, _part)
        for _name, _make in {
            "heads": _heads_table,
            "costs": _cost_table,
            "joint": _joint_table,
            "recovery": _recovery_table,
            "sets": _sets_table,
        }.items()
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


@table
@measured(probe_file("minilm"))
def probes_judged(payload: Recorded) -> Shown:
    rows = []
    for name, path in payload["joint"].items():
        for row in path["judged"]:
            if row["forced"] % 12 == 0:
                rows.append([name, row["forced"], f"{row['cost']:+.3f}", interval(*row["interval"])])
    return ["modes allowed", "heads forced", "change of error rate", "95% interval"], rows


@table
@measured(probe_file("stories"))
def probes_foreign(payload: Recorded) -> Shown:
    rows = []
    for name, found in payload["foreign_texts"].items():
        costs = {c["mode"]: c for c in found["costs"] if c["scope"] == "all"}
        rows.append([name, number(found["base"]["loss"]), *(f"{costs[m]['cost']:+.3f}" for m in costs)])
    return ["text", "loss", *costs], rows


@table
@measured(probe_file("collisions"))
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


@table
@measured(probe_file("collisions"))
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


@table
@measured(probe_file("speed"))
def probes_speed(payload: Recorded) -> Shown:
    rows = [
        ["labelling, over a forward pass with attention outputs", f"{payload['head_modes_over_forward']:.2f} x"],
        ["one ridge regression, 10^6 positions, E = 384", f"{payload['recovery_million']['seconds']:.1f} s"],
        ["GPT-2-small size: record and intervene, peak memory", f"{payload['gpt2_small']['peak_gib']:.2f} GiB"],
        ["length 512, 32 layers: labelling, peak memory", f"{payload['length_512_layers_32']['peak_gib']:.2f} GiB"],
    ]
    return ["", "measured"], rows
