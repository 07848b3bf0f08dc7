"""The pages docs/papers/*.md: every item of the lab, from results/<paper>/<item>/result.json.

An item is shown with the numbers of its full preset and no others. Results may stand in the item's folder or, one per
data set, in folders inside it. What was not run in full is named with the reason (docs/lab_notes.json) and the command
that would run it.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tables import ROOT, markdown

from infoflow.lab.item import Item, cell
from infoflow.lab.registry import ITEMS, find

RESULTS = ROOT / "results"
PAPERS = tuple(dict.fromkeys(name.split("/")[0] for name in ITEMS))
Rows = list[dict[str, Any]]


def paper(name: str, results: Path = RESULTS) -> str:
    items = [find(item) for item in ITEMS if item.split("/")[0] == name]
    notes = json.loads((ROOT / "docs/lab_notes.json").read_text(encoding="utf-8"))
    return "\n".join(_item(item, full_results(item, results), notes) for item in items)


def full_results(item: Item, results: Path = RESULTS) -> list[tuple[Path, dict[str, Any]]]:
    """The folders with a full result of this item; a run that only prepared files is none."""
    folder = results / item.name
    found = []
    for path in sorted([*folder.glob("result.json"), *folder.glob("*/result.json")]):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            if result["item"] != item.name:
                raise ValueError(f"it is of {result['item']}")
            prepared = bool(result["parts"]) and set(result["parts"]) <= set(item.preparations)
            if result["preset"] == "full" and not prepared:
                found.append((path.parent, result))
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"tables: {path} is no result of {item.name} ({error!r})") from None
    return found


def _item(item: Item, found: list[tuple[Path, dict[str, Any]]], notes: dict[str, str]) -> str:
    readme = f"../../src/infoflow/lab/papers/{item.name}/README.md"
    lines = [f"## {item.title}", "", f"`{item.name}`. [What the paper leaves unsaid and what was chosen]({readme})."]
    lines += ["", f"Protocol: {item.full}.", ""]
    for folder, result in found:
        lines += _result(item, folder, result, several=len(found) > 1)
    reason = notes.get(item.name, "no reason is recorded")
    if not found:
        lines += [f"**Not run in full**: {reason}. The command that would:", "", _command(item), ""]
    missing = _missing(item, found)
    if missing:
        said = f"**Not run in full**: {', '.join(missing)}: {reason}."
        lines += [f"{said} The command that would (it trains nothing again that is in the store):", ""]
        lines += [_command(item), ""]
    return "\n".join(lines)


def _missing(item: Item, found: list[tuple[Path, dict[str, Any]]]) -> tuple[str, ...]:
    """Parts that no full result holds; a result without named parts holds all of them. `a:b` is a piece of part `a`."""
    if not found or any(not result["parts"] for _, result in found):
        return ()
    run = {part for _, result in found for part in result["parts"]}
    missing: list[str] = []
    for part in item.parts:
        pieces = [piece for piece in item.parts if piece.startswith(f"{part}:")]
        left = [piece for piece in pieces if piece not in run]
        if ":" in part or part in run or (pieces and not left):
            continue
        missing += left if len(left) < len(pieces) else [part]
    return tuple(missing)


def _command(item: Item) -> str:
    data = " --data FOLDER" if item.data else ""
    return f"    infoflow reproduce {item.name} --preset full{data} --device cuda --out results/{item.name}"


def _result(item: Item, folder: Path, result: dict[str, Any], several: bool) -> list[str]:
    where = "../../results/" + item.name + (f"/{folder.name}" if folder.name != item.name.split("/")[1] else "")
    lines = [f"### {result.get('source', folder.name)}", ""] if several else []
    lines += [_made(result), "", _tables(result)]
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
    trained = f"{result['models']} models trained on {result['device']}, {seconds:,.0f} s summed over stacks"
    return f"{parts}{trained} ({machines}; commit {commits})."


def _tables(result: dict[str, Any]) -> str:
    """The rows as they are, or turned where they are many and the columns they need are there."""
    needs, turn = TURNED.get(result["item"], ((), None))
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
    """Triangle-center as the paper prints it, a length a row, paper and ours for each size; then the other targets."""
    main = [row for row in rows if row["target"] == "triangle"]
    rest = [row for row in rows if row["target"] != "triangle"]
    sizes, exponents = _values(main, "size"), ["exponent (lower)", "exponent (ordered)"]
    head = ["T", *(f"{size} {whose}" for size in sizes for whose in ("paper", "ours")), *exponents]
    body = [
        [T, *(_at(main, name, T=T, size=size) for size in sizes for name in ("paper", "mean")),
         *(_at(main, name, T=T) for name in exponents)]
        for T in _values(main, "T")
    ]  # fmt: skip
    tables = [markdown(head, body)] if main else []
    if rest:
        tables.append(_plain(rest, ["target", "T", "size", "label std", "mean", "seeds", *exponents]))
    return "\n".join(tables)


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
    for features, T in dict.fromkeys((row["features"], row["T"]) for row in rows):
        place = {"features": features, "T": T}
        found = [_at(rows, name, h=h, **place) for h in heads]
        body.append([features, T, *found, *(_at(rows, other, **place) for other in beside)])
    return markdown(["features", "T", *(f"h = {h}" for h in heads), *beside], body)


# item -> columns the turned table needs, and how it is turned
TURNED: dict[str, tuple[tuple[str, ...], Callable[[Rows], str]]] = {
    "infoflow/table12": (("target", "T", "size", "paper", "mean", "exponent (lower)"), _table12),
    "head_count/synthetic": (("T", "h", "N", "mean", "predicted"), _synthetic),
    "head_count/retrieval": (("features", "T", "h", "accuracy", "untrained model"), _retrieval),
}
TABLES: dict[str, Callable[[], str]] = {f"paper_{name}": partial(paper, name) for name in PAPERS}
