"""The pages docs/papers/*.md: every item of the lab, from results/<paper>/<item>/<preset>/result.json.

An item is shown with what the paper concludes and whether that holds, its three protocols, what the paper leaves
unsaid, where `best` differs from print, the paper's number beside ours of `paper` and `best`, and what was run. Where
there are several data sets a preset has a folder for each. What was not run is named with the command that would.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tables import ROOT, markdown

from infoflow.errors import InfoFlowError
from infoflow.lab.item import VALIDATION, Item, cell
from infoflow.lab.recorded import Results, missing, results_of, survey, together, verdicts
from infoflow.lab.registry import ITEMS, find

RESULTS = ROOT / "results"
RECORDED = ROOT / "src/infoflow/lab/recorded.json"
PAPERS = tuple(dict.fromkeys(name.split("/")[0] for name in ITEMS))
Rows = list[dict[str, Any]]


def paper(name: str, results: Path = RESULTS) -> str:
    items = [find(item) for item in ITEMS if item.split("/")[0] == name]
    try:
        return "\n".join(_item(item, results_of(item, results)) for item in items)
    except InfoFlowError as error:
        raise SystemExit(f"tables: {error}") from None


def recorded() -> str:
    """The text of `recorded.json`, by which an installed package knows what has been run and what holds."""
    return json.dumps(survey(RESULTS), indent=1) + "\n"


def _item(item: Item, found: Results) -> str:
    readme = f"../../src/infoflow/lab/papers/{item.name}/README.md"
    lines = [f"## {item.title}", "", f"`{item.name}`. [What was chosen and what it shows]({readme}).", ""]
    for verdict in together(verdicts(item, found)):
        said = f"The paper: {verdict['conclusion']}. **{_sentence(verdict['verdict'])}**"
        lines += [f"- {verdict['what']}. {said}"]
        lines += [f"    - `{preset}`: {number}" for preset, numbers in verdict["numbers"].items() for number in numbers]
    protocols = [[f"`{name}`", item.protocol(name)] for name in ("quick", "paper")]
    protocols.append(["`best`", item.best or "as `paper`: there is no recipe of ours"])
    lines += ["", markdown(["preset", "protocol"], protocols)]
    for words, entries in (
        ("Left unsaid by the paper and what stands in for it, and where `paper` is not as printed", item.unsaid),
        ("Differences of `best` from what is printed", item.differences),
    ):
        if entries:
            lines += [f"{words}:", "", *(f"- {entry}" for entry in entries), ""]
    table = _compared(item, found)
    lines += [table] if table else []
    for preset, results in found.items():
        for folder, result in results:
            lines += _result(item, folder, result, preset, several=len(results) > 1)
    for preset in ("paper", "best") if item.best else ("paper",):
        left = missing(item, found.get(preset, []))
        if preset not in found or left:
            what = f"`{preset}`: {', '.join(left)}" if left else f"`{preset}`"
            lines += [f"**Not run**: {what}. The command that would:", "", _command(item, preset), ""]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _command(item: Item, preset: str) -> str:
    data = " --data FOLDER" if item.data else ""
    where = f"results/{item.name}/{preset}"
    return f"    infoflow reproduce {item.name} --preset {preset}{data} --device cuda --out {where}"


def _compared(item: Item, found: Results) -> str:
    """A row for every row of the results: the paper's number, ours of `paper` and of `best`, with their spread."""
    if item.name in TURNED or not found or any(len(results) > 1 for results in found.values()):
        return ""
    keys, by = item.compared.keys, {preset: results[0][1]["rows"] for preset, results in found.items()}
    names = dict.fromkeys(tuple(row.get(key) for key in keys) for rows in by.values() for row in rows)
    body = []
    for name in names:
        rows = {p: next((r for r in rows if tuple(r.get(k) for k in keys) == name), None) for p, rows in by.items()}
        printed = [row[item.compared.printed] for row in rows.values() if row and item.compared.printed in row]
        known = next((value for value in printed if value is not None), None)
        ours = [_spread(rows.get(preset), item) for preset in ("paper", "best")]
        body.append([*map(cell, name), *([cell(known)] if item.compared.printed else []), *ours])
    words = "published code" if item.compared.printed == "published" else "printed"
    head = [*keys, *([words] if item.compared.printed else []), "`paper`", "`best`"]
    spread = {None: "", "std": ", ours ± the deviation over seeds"}.get(
        item.compared.spread, f", ours ± {item.compared.spread}"
    )
    return f"{item.compared.value[:1].upper() + item.compared.value[1:]}{spread}:\n\n" + markdown(
        head if item.best else head[:-1], body if item.best else [row[:-1] for row in body]
    )


def _spread(row: dict[str, Any] | None, item: Item) -> str:
    if row is None:
        return ""
    value, spread = cell(row.get(item.compared.value)), row.get(item.compared.spread or "")
    return f"{value} ± {spread:.1g}" if value and spread else value


def _result(item: Item, folder: Path, result: dict[str, Any], preset: str, several: bool) -> list[str]:
    where = f"../../results/{item.name}/{preset}" + (f"/{folder.name}" if folder.name != preset else "")
    source = f": {result.get('source', folder.name)}" if several else ""
    lines = [f"### `{preset}`{source}", "", _made(result), "", _tables(item, result)]
    lines += [f"- {remark}" for remark in result["remarks"]]
    lines += [""] if result["remarks"] else []
    for name in result["figures"]:
        if (folder / name).is_file():
            lines += [f"![{name.removesuffix('.svg').replace('_', ' ')}]({where}/{name})", ""]
    commands = dict.fromkeys(call["command"] for call in [*(result.get("trained") or []), result["provenance"]])
    said = ", ".join(f"`{command}`" for command in commands)
    lines += [f"<sub>[Every run]({where}/result.json): {said}</sub>", ""]
    return lines


def _made(result: dict[str, Any]) -> str:
    """What was run, where, how long, at which commit. A stack's seconds are shared by its models.

    The call that wrote the table may only have read the store: `trained` names those that trained.
    """
    calls = result.get("trained") or [result["provenance"]]
    parts = f"Parts run: {', '.join(result['parts'])}. " if result["parts"] else ""
    machines = "; ".join(dict.fromkeys(call["machine"] for call in calls))
    commits = ", ".join(dict.fromkeys(call["commit"] or "not recorded" for call in calls))
    if not result["models"]:
        return f"{parts}Drawn in {result['seconds']:,.0f} s ({machines}; commit {commits})."
    seconds = result["training_seconds"]
    trained = f"{result['models']} models trained, {seconds:,.0f} s summed over stacks"
    chose = result["scored"].startswith(VALIDATION)
    flattered = " **These samples chose what they score, which flatters the numbers**; the notes say by how much."
    return f"{parts}{trained} ({machines}; commit {commits}). Measured on {result['scored']}.{flattered * chose}"


def _tables(item: Item, result: dict[str, Any]) -> str:
    """The rows as they are, or turned where they are many and the columns they need are there."""
    needs, turn = TURNED.get(item.name, ((), None))
    if turn is None or not set(needs) <= set(result["columns"]):
        return _plain(result["rows"], result["columns"])
    return turn(result["rows"])


def _plain(rows: Rows, columns: list[str]) -> str:
    return markdown(columns, [[cell(row.get(name)) for name in columns] for row in rows])


def _values(rows: Rows, name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def _at(rows: Rows, name: str, **where: Any) -> str:
    """The cell of the one row that fits, or nothing."""
    chosen = [row for row in rows if all(row[key] == value for key, value in where.items())]
    return cell(chosen[0].get(name)) if chosen else ""


def _table12(rows: Rows) -> str:
    """Triangle-center as the paper prints it, a length a row, both encoders for each size; then the control."""
    main = [row for row in rows if row["target"] == "triangle"]
    rest = [row for row in rows if row["target"] != "triangle"]
    encoders, exponents = _values(rows, "encoder"), ["exponent (lower)", "exponent (ordered)"]
    tables = []
    if main:
        sizes = _values(main, "size")
        head = ["T", *(f"{size} {whose}" for size in sizes for whose in ("printed", *encoders)), *exponents]
        body = []
        for T in _values(main, "T"):
            line: list[Any] = [T]
            for size in sizes:
                line.append(_at(main, "paper", T=T, size=size))
                line += [_with_spread(main, T=T, size=size, encoder=encoder) for encoder in encoders]
            body.append([*line, *(_at(main, name, T=T) for name in exponents)])
        tables = ["NMSE by size and encoder, with the spread of two seeds:\n", markdown(head, body)]
    if rest:
        head = ["T", "size", "label std", *encoders, *exponents]
        body = [
            [T, *(_at(rest, name, T=T) for name in ("size", "label std")),
             *(_with_spread(rest, T=T, encoder=encoder) for encoder in encoders),
             *(_at(rest, name, T=T) for name in exponents)]
            for T in _values(rest, "T")
        ]  # fmt: skip
        tables += ["The control, pair-min, at lengths where its label varies as much:\n", markdown(head, body)]
    return "\n".join(tables)


def _with_spread(rows: Rows, **where: Any) -> str:
    mean, deviation = _at(rows, "mean", **where), [r for r in rows if all(r[k] == v for k, v in where.items())]
    return f"{mean} ± {deviation[0]['std']:.1g}" if deviation and deviation[0].get("std") else mean


def _synthetic(rows: Rows) -> str:
    """Mean NMSE, a column per h: a row per T at the usual width, then a row per width at the T where it is swept."""
    heads, lengths = _values(rows, "h"), _values(rows, "T")
    widths = {T: _values([row for row in rows if row["T"] == T], "N") for T in lengths}
    usual = max(widths[lengths[0]], key=lambda N: sum(N in found for found in widths.values()))
    said = [_at(rows, "predicted", T=lengths[0], N=usual, h=h) for h in heads]
    first = [[T, *(_at(rows, "mean", T=T, N=usual, h=h) for h in heads)] for T in lengths]
    tables = [f"Mean NMSE, N = {usual} (the paper prints figures only):\n"]
    tables.append(markdown(["T", *(f"h = {h}" for h in heads)], [*first, ["predicted", *said]]))
    for T in (T for T in lengths if len(widths[T]) > 1):
        swept = [[N, *(_at(rows, "mean", T=T, N=N, h=h) for h in heads)] for N in sorted(widths[T])]
        tables += [f"Mean NMSE, T = {T}:\n", markdown(["N", *(f"h = {h}" for h in heads)], swept)]
    return "\n".join(tables)


def _retrieval(rows: Rows) -> str:
    """Accuracy, a column per h; then the same on native lists where there are some."""
    tables = ["Accuracy on test lists, mean over seeds (the paper prints figures only):\n"]
    tables.append(_by_heads(rows, "accuracy", ("chance", "untrained cosine")))
    tables += ["The same networks before training:\n", _by_heads(rows, "untrained model", ())]
    native = [row for row in rows if row.get("native accuracy") is not None]
    if native:
        tables += ["Accuracy of the same models on native lists:\n"]
        tables.append(_by_heads(native, "native accuracy", ("native lists", "chance", "native cosine")))
    return "\n".join(tables)


def _by_heads(rows: Rows, name: str, beside: tuple[str, ...]) -> str:
    heads = _values(rows, "h")
    body = []
    for features, E, T in dict.fromkeys((row["features"], row["E"], row["T"]) for row in rows):
        place = {"features": features, "E": E, "T": T}
        found = [_at(rows, name, h=h, **place) for h in heads]
        body.append([features, E, T, *found, *(_at(rows, other, **place) for other in beside)])
    return markdown(["features", "E", "T", *(f"h = {h}" for h in heads), *beside], body)


# item -> columns the turned table needs, and how it is turned
TURNED: dict[str, tuple[tuple[str, ...], Callable[[Rows], str]]] = {
    "infoflow/table12": (("target", "T", "size", "encoder", "paper", "mean", "exponent (lower)"), _table12),
    "head_count/synthetic": (("T", "h", "N", "mean", "predicted"), _synthetic),
    "head_count/retrieval": (("features", "E", "T", "h", "accuracy", "untrained model"), _retrieval),
}
TABLES: dict[str, Callable[[], str]] = {f"paper_{name}": partial(paper, name) for name in PAPERS}
