"""The table of docs/explorer.md: what 50 clients at once met."""

from tables import Recorded, Shown, measured, recorded, registry

TABLES, table = registry()
KINDS = {
    "new flow": "a flow nobody has asked for (computed)",
    "known flow": "a flow that is kept",
    "predict": "a prediction",
    "plan": "a plan",
    "file": "the page and its files",
}


@table
@measured("benchmarks/results/explorer.json")
def explorer(payload: Recorded) -> Shown:
    rows = [[words, *_row(payload["by_kind"][kind])] for kind, words in KINDS.items()]
    rows.append(["all", *_row(payload["all"])])
    return ["request", "number", "median", "95 in 100", "99 in 100"], rows


@table
def explorer_load() -> str:
    """The setting in a sentence."""
    payload = recorded("benchmarks/results/explorer.json")
    errors = sum(payload["errors"].values())
    return (
        f"{payload['clients']} clients for {payload['seconds']:g} s on loopback, {payload['requests']:,} requests "
        f"({payload['a_second']:.0f} a second), {errors or 'no'} error{'s' * (errors != 1)}, "
        f"{payload['memory_mib']:.0f} MiB with all workers (niceness {payload['niceness']}, on a machine others kept "
        f"busy: load {payload['load']:.0f}). Times within which so many requests were answered:\n"
    )


def _row(found: Recorded) -> list[str]:
    return [f"{found['requests']:,}", *(f"{found[name]:.0f} ms" for name in ("median_ms", "p95_ms", "p99_ms"))]
