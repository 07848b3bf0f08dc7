"""The tables of docs/certify_trained.md, from benchmarks/results/proofs_*.json."""

from typing import Any

from tables import ROOT, Recorded, Shown, markdown, number, plain, recorded, registry, source

TABLES, table = registry()
SWEEP = "benchmarks/results/proofs_sweep.json"


def _bound(value: float | None, largest: float) -> str:
    """A bound; in brackets where it says nothing, because the target itself is not larger."""
    if value is None:
        return "none"
    return number(value) if value < largest else f"({number(value)})"


@table("benchmarks/results/proofs_table.json")
def proofs_rivals(payload: Recorded) -> Shown:
    """Short sequences, where general verifiers can run at all."""
    rows = []
    for r in payload["rows"]:
        largest = r["largest_target"]
        names = ("ibp", "crown", "alpha_crown", "crown_splitting")
        rivals = [_bound(r[name], largest) if name in r else "" for name in names]
        rows.append([f"`{r['target']}`", r["layers"], r["T"], number(r["attacked"]), *rivals,
                     _bound(r["unsplit"], largest) if "unsplit" in r else "",
                     f"**{_bound(r['bound'], largest)}**", number(largest)])  # fmt: skip
    head = ["trained on", "layers", "T", "attacked", "IBP", "CROWN", "alpha-CROWN"]
    return [*head, f"CROWN, {payload['splitting_seconds']:g} s of splitting", "unsplit", "certify", "max abs F"], rows


TABLES["proofs_long"] = plain(  # long sequences, which only the averages reach
    "benchmarks/results/proofs_long.json",
    "trained on | heads | h d | T | attacked | proved | proved / attacked | seconds | processor seconds",
    "`{target}` | {heads} | {dimensions} | {T:,} | {attacked:.3g} | {bound:.3g} | {ratio:.3f} | {seconds:.0f} | "
    "{processor_seconds:.0f}",
)


@table
def proofs_sweep() -> str:
    """Both sweeps side by side."""
    names = {"as `fit` trains": SWEEP, "with `--certifiable`": SWEEP.replace(".json", "_certifiable.json")}
    found: dict[str, Any] = {words: recorded(path) for words, path in names.items() if (ROOT / path).is_file()}
    asked = [
        ("networks", lambda s, p: f"{s['networks']} of {p['drawn']} drawn"),
        ("bound at most 1.5 times the attacked error", lambda s, p: s["within_1.5"]),
        ("bound at most 2 times the attacked error", lambda s, p: s["within_2"]),
        ("proved / attacked: median, largest", lambda s, p: f"{s['median_ratio']:.3f}, {s['largest_ratio']:.2f}"),
        ("false bounds (an attack above)", lambda s, p: s["false_bounds"]),
        ("attacked error / max abs F, median", lambda s, p: number(s["median_attacked"], 2)),
        ("attacked below max abs F / 8", lambda s, p: s["attacked_below_an_eighth"]),
        ("of those proved below max abs F / 4", lambda s, p: s["of_those_proved_below_a_quarter"]),
        ("NMSE on normal tokens, median", lambda s, p: f"{s['median_nmse']:.1e}"),
        ("seconds given to certify, to the second attack",
         lambda s, p: "{search_seconds:g}, {second_attack:g}".format(**p["rows"][0]["times"])),
        ("seconds, processor seconds of certify, median",
         lambda s, p: f"{s['median_seconds']:.1f}, {s['median_processor_seconds']:.1f}"),
    ]  # fmt: skip
    rows = [[words, *(show(p["summary"], p) for p in found.values())] for words, show in asked]
    return markdown(["", *found], rows) + "".join(source(p) for p in found.values())


TABLES["proofs_accuracy"] = plain(
    "benchmarks/results/proofs_accuracy.json",
    "strategy | accuracy at least | at most | groups bounded | processor seconds",
    "{strategy} | {right:.6f} | {at_most:.6f} | {groups:,} | {seconds:.2f}",
)
