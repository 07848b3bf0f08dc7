"""The tables of docs/rank_one.md, from benchmarks/results/rank_one.json and conll.json.

Every row compares a known number with ours: "=" a constant to be reproduced (within 3 %, the digits it is known to),
"==" one known to all its digits, ">=" and "<=" a quality that must not be worse.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tables import cells, markdown, recorded

Row = tuple[str, float, float, str]  # what, known, ours, sense
SENSES = {"equal": "=", "at least": ">=", "at most": "<="}


def _section(name: str) -> Any:
    return recorded("benchmarks/results/rank_one.json")[name]["result"]


def _facts(section: int) -> Iterator[Row]:
    for row in _section("facts"):
        if row["section"] == section:
            yield row["what"], row["known"], row["value"], SENSES[row["sense"]]


def _projections() -> Iterator[Row]:
    for row in _section("projections"):
        yield f"gap / max abs p, m = {row['m']}, d = {row['d']}: {row['method']}", row["known"], row["quality"], ">="


def _scales() -> Iterator[Row]:
    names = {"auto": "auto", "sufficient": "(log n + 2)/(g q_min)", "twice": "(2 log n + 3)/(g q_min)", "paper": "(29)"}
    for row in _section("scales"):
        about = f"V, d, n, N = {', '.join(map(str, row['V,d,n,N']))}"
        for name, sense in (("low", "<="), ("high", ">=")):
            words = f"{about}: log10 gap promised by (8), {'5th' if name == 'low' else '95th'} percentile of 101 draws"
            yield words, row["known"]["equation_8"], row["equation_8"][name], sense
        for scale, words in names.items():
            yield f"{about}: log10 gap, scale {words}", row["known"][scale], row[scale]["log10_gap"], ">="
        yield f"{about}: float64 gap, auto", row["known"]["float64"], row["auto"]["float64_gap"], ">="
        yield f"{about}: float64 gap, (29)", 0.0, row["paper"]["float64_gap"], "="


def _reach() -> Iterator[Row]:
    for row in [*_section("reach"), _section("million")]:
        if row["known"] is not None:
            yield f"gap / max abs p, {row['data']}, {row['contexts']} contexts", row["known"], row["gap"], ">="


def _certificates() -> Iterator[Row]:
    balls, saturated = _section("balls"), _section("scales")[-1]["saturated_certificate"]
    yield "16 000 contexts in balls, processor seconds", balls["known_seconds"], balls["cpu_seconds"], "<="
    yield "saturated certificate, V = 200, n = 16, N = 200, processor seconds", 2.0, saturated["cpu_seconds"], "<="


def _memorisation() -> Iterator[Row]:
    for row in _section("memorisation"):
        about = f"V, d, n, N, C = {', '.join(map(str, row['V,d,n,N,C']))}"
        yield f"{about}: wrong of {row['contexts']}", 0, row["wrong"], "="
        yield f"{about}: gap / range", row["known_gap"], row["gap"], ">="
        yield f"{about}: largest error ({row['dense_places']} places dense)", row["known_error"], row["max_error"], "<="
        yield f"{about}: processor seconds", row["known_seconds"], row["cpu_seconds"], "<="


def _positions() -> Iterator[Row]:
    for row in _section("positions"):
        about = f"gap / range, d = {row['d']}, N = {row['N']}, n = 10, encoding {row['encoding']}"
        if row["known"] is not None:
            yield about, row["known"], row["gap"], ">="


def _equivariant() -> Iterator[Row]:
    result = _section("proposition_1")
    for row in result["errors"]:
        about = f"{row['function']}, n = {row['n']}, D = {row['D']}"
        yield f"L2, {about}, {row['labels']}", row["known"], row["l2"], "="
    for row in _section("duplicates"):
        yield f"L2, {row['function']}, n = 2, D = {row['D']}, duplicate cells zeroed", row["known"], row["l2"], "="
    small = [row for row in result["errors"] if row["D"] == 8]
    yield "distance to the step function off the ramps, D = 8", 1.3e-13, max(r["off_strip"] for r in small), "<="
    yield "largest output outside the cube, D = 8", 6e-12, max(r["outside"] for r in small), "<="
    last = next(row for row in result["errors"] if row["D"] == 64)
    seconds = last["build"]["cpu_seconds"] + last["evaluate"]["cpu_seconds"]
    yield "D = 64, built and evaluated, processor seconds", 5.0, seconds, "<="


def _masks() -> Iterator[Row]:
    for row in _section("masks"):
        yield f"gap / max abs p, mask {row['mask']}, {row['contexts']} classes", row["known"], row["gap"], ">="
    text = recorded("benchmarks/results/conll.json")
    yield "CoNLL-2003: classes merged because proportional", 4, text["merged"], "="


def _text() -> Iterator[Row]:
    text = recorded("benchmarks/results/conll.json")
    yield "classes", 179_868, text["contexts"], "=="
    yield "gap / range", 4.9e-11, text["gap"], ">="
    yield f"largest error, {text['dense_places']} tokens through the dense network", 2.3e-4, text["max_error"], "<="
    yield f"training accuracy, all {text['tokens']} tokens", 0.99839, text["accuracy"], "=="
    for name, known in (("majority", 0.8328), ("word", 0.9742), ("order_free", 0.9984), ("positions", 0.99999)):
        yield f"ceiling, {name.replace('_', '-')}", known, text["ceilings"][name], "=="


GROUPS: dict[str, tuple[Callable[[], Iterator[Row]], ...]] = {
    "boltzmann": (partial(_facts, 1),),
    "projections": (partial(_facts, 2), _projections),
    "hardmax": (partial(_facts, 3),),
    "context_maps": (partial(_facts, 4), _scales, _reach, _certificates),
    "memorisation": (partial(_facts, 5), _memorisation),
    "positions": (partial(_facts, 6), _positions),
    "equivariant": (_equivariant,),
    "masks": (partial(_facts, 8), _masks),
    "text": (_text,),
}


def holds(known: float, ours: float, sense: str) -> bool:
    if sense in ("=", "=="):
        return abs(ours - known) <= (0.03 if sense == "=" else 5e-5) * abs(known)
    return ours >= known if sense == ">=" else ours <= known


def rows_of(group: str) -> list[Row]:
    return [row for part in GROUPS[group] for row in part()]


def _comparison(group: str) -> str:
    digits = 6 if group == "text" else 3
    rows = [
        [what, f"{sense} {known:.{digits}g}", f"{ours:.{digits}g}", "yes" if holds(known, ours, sense) else "**no**"]
        for what, known, ours, sense in rows_of(group)
    ]
    return markdown(["what", "known", "ours", "holds"], rows)


def _summary() -> str:
    rows = [(group, row) for group in GROUPS for row in rows_of(group)]
    missed = [(group, row) for group, row in rows if not holds(*row[1:])]
    recorded_at = recorded("benchmarks/results/rank_one.json")
    commits = sorted({part["commit"] for name, part in recorded_at.items() if name != "provenance"})
    source = f"commits {', '.join(commits)}, {recorded_at['provenance']['machine']}"
    end = "; not these:" if missed else "."
    lines = [
        f"{len(rows) - len(missed)} of {len(rows)} known numbers are matched or improved{end}",
        *(f"- {group.replace('_', ' ')}: {what}: {ours:.3g} against {known:.3g}"
          for group, (what, known, ours, _) in missed),
        f"<sub>`python benchmarks/rank_one.py`, {source}</sub>",
    ]  # fmt: skip
    return "\n\n".join(lines) + "\n"


def _plane() -> str:
    form = "{function} | {labels} | {D} | {l2:.3g} | {limit:.3g} | {ratio:.3g} | {unnamed:.3g}"
    found = ({**row, "ratio": row["l2"] / row["limit"]} for row in _section("proposition_1")["plane"])
    head = ["f", "labels", "D", "L2", "limit / D", "ratio", "known, f not named"]
    return markdown(head, [cells(form, row) for row in found])


def _alternatives() -> str:
    rows = [
        [row["contexts"], name.replace("_", " "), *cells("{cpu_seconds:.3g} s | {wrong}", row[name])]
        for row in _section("alternatives")
        for name in ("construction", "adam", "least_squares")
    ]
    return markdown(["contexts", "way", "processor time", "wrong"], rows)


TABLES: dict[str, Callable[[], str]] = {
    **{f"rank_one_{group}": partial(_comparison, group) for group in GROUPS},
    "rank_one_summary": _summary,
    "rank_one_plane": _plane,
    "rank_one_alternatives": _alternatives,
}
