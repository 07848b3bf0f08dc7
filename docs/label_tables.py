"""The tables of docs/head_labels.md, from benchmarks/results/probes_{planted,built,shuffled}.json."""

from typing import Any

from tables import Recorded, Shown, probe_file, registry

TABLES, table = registry()


@table(probe_file("planted"))
def labels_gaps(payload: Recorded) -> Shown:
    """Bounds beside the planted scores next to them, on the seeds they were set on and on those reported."""
    rows = []
    for name, bound in payload["bounds"].items():
        cells = [f"{value:.3f}" for seeds in ("set on", "reported") for value in payload["gaps"][seeds][name]]
        rows.append([name, bound, *cells])
    head = ["score", "bound", "set on: below up to", "above from", "reported: below up to", "above from"]
    return head, rows


@table(probe_file("planted"))
def labels_planted(payload: Recorded) -> Shown:
    """Accuracy over all lengths and both masks, with the smallest of them."""
    rows = []
    for case in dict.fromkeys(row["case"] for row in payload["rows"]):
        own = [row for row in payload["rows"] if row["case"] == case]
        heads = sum(row["heads"] for row in own)
        cells = []
        for key in ("accuracy", "accuracy_as_planted"):
            cells.append(f"{sum(row[key] * row['heads'] for row in own) / heads:.3f}")
            cells.append(f"{min(row[key] for row in own):.3f}")
        rows.append([case, heads, *cells, sum(row["top_made_max_by_noise"] for row in own)])
    head = ["planted heads", "heads", "accuracy", "worst", "by the name before noise", "worst", "top made max by noise"]
    return head, rows


@table(probe_file("built"))
def labels_hidden(payload: Recorded) -> Shown:
    rows = []
    for mode in payload["hidden"]["0.02"]["modes"]:
        cells: list[Any] = [mode]
        for noise in ("0.02", "0.05"):
            found = payload["hidden"][noise]["modes"][mode]
            precision = "none so labelled" if found["precision"] is None else f"{found['precision']:.3f}"
            cells += [int(found["support"]), precision, f"{found['recall']:.3f}"]
        rows.append(cells)
    head = ["mode", "heads", "precision at 2%", "recall", "heads", "precision at 5%", "recall"]
    return head, rows


def _shuffle_rows(name: str, found: dict[str, Any]) -> list[list[Any]]:
    rows = []
    for label, row in sorted(found.items(), key=lambda item: -item[1]["heads"]):
        reads = ", ".join(f"{count} {what}" for what, count in row["reads"].items())
        rows.append([name, label, row["heads"], f"{row['follows']:.2f}", f"{row['stays']:.2f}", reads])
    return rows


@table(probe_file("planted"))
def labels_shuffled_planted(payload: Recorded) -> Shown:
    rows = [
        line
        for row in payload["shuffled"]
        if row["mask"] == "causal"
        for line in _shuffle_rows(row["case"], row["kinds"])
    ]
    return ["planted heads, causal", "mode", "heads", "follows", "stays", "reads"], rows


@table(probe_file("shuffled"))
def labels_shuffled(payload: Recorded) -> Shown:
    rows = [line for found in payload["models"].values() for line in _shuffle_rows(found["model"], found["by_label"])]
    return ["model", "label", "heads", "follows", "stays", "reads"], rows
