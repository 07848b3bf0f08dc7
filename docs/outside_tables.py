"""The tables of docs/security.md (limits, read from the constants of the code) and docs/cluster.md (measured)."""

from tables import Recorded, Shown, markdown, plain, registry

TABLES, table = registry()


@table
def limits() -> str:
    """Every limit that a file from outside meets, with the number the code has."""
    from infoflow import architecture, cost, errors, reading
    from infoflow.construct.softmax_attention import expression
    from infoflow.nn import config, files
    from infoflow.probes import folders, stories, texts, token_rules
    from infoflow.train import ray
    from infoflow.web import guard, lanes

    rows = [
        ["a text or a data file, unpacked", _bytes(reading.LARGEST_TEXT), "`reading.LARGEST_TEXT`, `--text-limit`"],
        ["a header, a record, a config.json", _bytes(reading.LARGEST_JSON), "`reading.LARGEST_JSON`"],
        ["memory that a call may be expected to take", _share(cost.SHARE, cost.MOST_MEMORY), "`cost.SHARE`"],
        ["work of a call that cannot be resumed", f"{cost.MOST_SECONDS:g} s", "`cost.MOST_SECONDS`"],
        ["a size in the configuration of a saved network", config.LARGEST, "`nn.config.LARGEST`"],
        ["tensors of a saved network", files.MOST_TENSORS, "`nn.files.MOST_TENSORS`"],
        ["heads of an architecture, all layers together", architecture.MOST_HEADS, "`architecture.MOST_HEADS`"],
        ["characters of an expression", expression.LONGEST, "`expression.LONGEST`"],
        ["nested brackets of an expression", expression.DEEPEST, "`expression.DEEPEST`"],
        ["layers, blocks or experts of a foreign model", stories.MOST_LAYERS, "`stories.MOST_LAYERS`"],
        [
            "parameters of a foreign model",
            f"{8 // folders.LEAST_BITS} for each byte of weights",
            "`folders.LEAST_BITS`",
        ],
        ["a llama2.c tokenizer", _bytes(stories.LARGEST_TOKENIZER), "`stories.LARGEST_TOKENIZER`"],
        ["characters of a line encoded at once", texts.LONGEST_LINE, "`texts.LONGEST_LINE`"],
        ["letters a tokenizer makes of one", token_rules.LARGEST_GROWTH, "`token_rules.LARGEST_GROWTH`"],
        ["labels of a foreign model", folders.MOST_LABELS, "`folders.MOST_LABELS`"],
        ["characters of a message", errors.LONGEST, "`errors.LONGEST`"],
        ["a question to the explorer", _bytes(guard.LARGEST_BODY), "`web.guard.LARGEST_BODY`"],
        ["memory of a worker of the explorer", _bytes(max(lanes.MEMORY.values())), "`web.lanes.MEMORY`"],
        ["answer of a Ray cluster", f"{ray.ANSWER:g} s", "`engines.ray.ANSWER`"],
    ]
    return markdown(["what", "at most", "where"], rows)


@table("benchmarks/results/planning.json")
def planning(payload: Recorded) -> Shown:
    plan = payload["planning"]
    rows = [[f"planning {plan['runs']:,} runs", f"{plan['cpu_seconds']:.1f} s", f"{plan['mebibytes']:.0f} MiB"]]
    rows += [[f"waiting for {row['tasks']:,} tasks", f"{row['cpu_seconds']:.2f} s", ""] for row in payload["waiting"]]
    return ["", "processor time of the caller", "memory above that of the imports"], rows


TABLES["cluster_runs"] = plain(
    "benchmarks/results/cluster.json",
    "runs | time | processor time of the caller | of the head's control store | its memory",
    "{runs:,} | {seconds:.1f} s | {caller_cpu_seconds:.1f} s | {head_cpu_seconds:.1f} s | {head_mebibytes:.0f} MiB",
)


def _bytes(size: int) -> str:
    return f"{size / 2**20:g} MiB"


def _share(share: float, most: int) -> str:
    return f"{share:.0%} of what is free, {most >> 30} GiB"
