"""The table of docs/explorer.md: what 50 clients at once met."""

from tables import Recorded, Shown, cells, registry

TABLES, table = registry()
KINDS = {
    "new flow": "a flow nobody has asked for (computed)",
    "known flow": "a flow that is kept",
    "predict": "a prediction",
    "plan": "a plan",
    "file": "the page and its files",
}


@table("benchmarks/results/explorer.json")
def explorer(payload: Recorded) -> Shown:
    form = "{requests:,} | {median_ms:.0f} ms | {p95_ms:.0f} ms | {p99_ms:.0f} ms"
    found = {words: payload["by_kind"][kind] for kind, words in KINDS.items()} | {"all": payload["all"]}
    rows = [[words, *cells(form, each)] for words, each in found.items()]
    return ["request", "number", "median", "95 in 100", "99 in 100"], rows
