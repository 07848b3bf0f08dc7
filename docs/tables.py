"""Write the measured tables into README.md and docs/*.md from the recorded JSON; `--check` only compares.

A page marks a table by `<!-- table NAME -->` and `<!-- end -->`; NAME is a function below. Nothing measured is typed
by hand. Run: python docs/tables.py [--check]
"""

import json
import re
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any

ROOT = Path(__file__).parent.parent
Table = Callable[[], str]
Recorded = dict[str, Any]
Shown = tuple[list[str], list[list[Any]]]  # head and rows
CERTIFIED = set(product(("min_pair:d=3", "pairwise_max:D=4,d=4,seed=0"), (4, 64), (0.1, 0.01)))
MARK = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
VALUE = re.compile(r"(<!--=\s+(\S+) ([^|]+) \| (\S+) -->).*?(<!--/-->)", re.DOTALL)


def registry() -> tuple[dict[str, Table], Callable[[Any], Any]]:
    """Tables by name, and the decorator that adds a function under its own; each file of tables has its registry.

    `@table` takes a function that makes the text, `@table("benchmarks/results/x.json")` one that makes head and rows of
    what is recorded there (see `measured`).
    """
    tables: dict[str, Table] = {}

    def table(made: Any) -> Any:
        if isinstance(made, str):
            return lambda function: table(measured(made)(function))
        tables[made.__name__] = made
        return made

    return tables, table


TABLES, table = registry()


def recorded(name: str) -> Recorded:
    payload: Recorded = json.loads((ROOT / name).read_text(encoding="utf-8"))
    return payload


def probe_file(part: str) -> str:
    return f"benchmarks/results/probes_{part}.json"


def probed(part: str) -> Recorded:
    return recorded(probe_file(part))


def markdown(head: list[str], rows: list[list[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def source(payload: Recorded) -> str:
    """Where the numbers come from, under the table: of a lab item the calls that trained, which may be several."""
    if payload.get("trained"):
        commits, machines = (
            ", ".join(sorted({call[name] for call in payload["trained"]})) for name in ("commit", "machine")
        )
        command = f"infoflow reproduce {payload['item']} --preset {payload['preset']}"
        return f"\n<sub>`{command}`, trained at commit {commits}, {machines}</sub>\n"
    made = payload["provenance"]
    commit = f"commit {made['commit']}" if made["commit"] else "no commit recorded"
    return f"\n<sub>`{made['command']}`, {commit}, {made['machine']}</sub>\n"


def measured(name: str) -> Callable[[Callable[[Recorded], Shown]], Table]:
    """Makes a table of a function that turns a recorded file into (head, rows); its source stands under it."""

    def decorate(function: Callable[[Recorded], Shown]) -> Table:
        @wraps(function)
        def shown() -> str:
            payload = recorded(name)
            return markdown(*function(payload)) + source(payload)

        return shown

    return decorate


class Cells(Formatter):
    """Python's forms of a recorded value, and ours: nothing for None, `i2` for a value with its interval to two digits,
    `a form, of each` for a list; `{best[-1]}` is its last."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        name, last, _ = field_name.partition("[-1]")
        found, key = super().get_field(name, args, kwargs)
        return (found[-1] if last else found), key

    def format_field(self, value: Any, spec: str) -> str:
        if value is None:
            return ""
        if spec.startswith("i"):
            return "{} [{}, {}]".format(*(f"{end:.{spec[1:]}g}" for end in value))
        if spec.endswith(", of each"):
            return ", ".join(format(item, spec.removesuffix(", of each")) for item in value)
        return format(value, spec)


def cells(form: str, row: Recorded) -> list[str]:
    """A row as Python's `form` of it says, cells separated by bars."""
    return [cell.strip() for cell in Cells().format(form, **row).split("|")]


def plain(file: str, head: str, form: str, rows: str = "rows", where: Callable[[Recorded], Any] = bool) -> Table:
    """A table of recorded rows as they are: `head` and the `form` of a row, cells separated by bars."""
    return measured(file)(
        lambda payload: (head.split(" | "), [cells(form, row) for row in payload[rows] if where(row)])
    )


@table
def training() -> str:
    rows = []
    for device in ("cuda", "cpu"):
        path = ROOT / f"benchmarks/results/train_{device}.json"
        if not path.is_file():
            continue
        payload = recorded(str(path.relative_to(ROOT)))
        for D, found in payload["workloads"].items():
            rates = {name: "" if rate is None else f"{rate:,.0f}" for name, rate in found["rates"].items()}
            rows.append([payload["provenance"]["machine"], D, *(rates[n] for n in ("plain", "vmap", "jax", "ours")),
                         f"{found['ratio']:.3g}"])  # fmt: skip
    return markdown(["machine", "D", "a module per seed", "vmap", "JAX", "ours", "ours / module"], rows)


@table
def headlines() -> str:
    """One row for each thing a reader of the README may want to check, with the command that measures it again."""
    from infoflow.lab.registry import find

    pairs = recorded("results/infoflow/table11/best/result.json")
    table11 = import_module("infoflow.lab.papers.infoflow.table11.item")
    trained, ours = pairs["rows"], table11.BEST[4]
    published = recorded("results/softmax_attention/figure2/paper/result.json")
    as_printed = recorded("results/infoflow/table11/paper/result.json")
    four, three, four_printed, three_printed = (
        next(row for row in rows if row["D"] == 4 and row["heads"] == heads)
        for rows in (trained, as_printed["rows"])
        for heads in ("(4,4)", "(3,4)")
    )
    speed = recorded("benchmarks/results/train_cuda.json")["workloads"]["2"]
    certified = recorded("benchmarks/results/certificates.json")["table"]
    bound = next(r for r in certified if (r["target"], r["T"], r["eps"]) == ("pairwise_max:D=4,d=4,seed=0", 64, 0.01))
    sweep = recorded("benchmarks/results/proofs_sweep.json")
    proofs, times = sweep["summary"], sweep["rows"][0]["times"]
    drawn = recorded("benchmarks/results/predict_vs_build.json")
    walls = [s["wall"] for s in recorded("benchmarks/results/flow.json")["prediction_seconds_at_T_1000000"].values()]
    rows = [
        import_module("forecast_tables").headline(),
        [
            "four maxima over pairs (eq. (6), D = 4, T = 64): NMSE with 4 heads, with one head fewer in layer 1",
            f"{four['mean']:.1e} (paper {four['paper mean']:.1e}), {three['mean']:.1e}; as printed "
            f"{four_printed['mean']:.1e}, {three_printed['mean']:.1e}",
            f"ours, {table11.SEEDS['best']} seeds: rate {ours.lr:.0e} instead of 1e-3, decay {ours.decay:.0e} instead "
            f"of 1e-2, rising over {ours.warm_up:,} steps; a model {ours.rollback:g} times above its best returns "
            f"to it at half the rate; each seed goes on for {ours.epochs:,} epochs from the best of {ours.starts} "
            f"starts of {ours.start_epochs} epochs; scored on {pairs['scored']} (print: on validation samples). "
            f"As printed, {table11.SEEDS['paper']} "
            f"of 16 seeds: for {as_printed['protocol'].rpartition(', ')[2]}, as the paper gives no length; scored on "
            f"{as_printed['scored']}",
            "`infoflow reproduce infoflow/table11 --preset best`",
        ],
        [
            "the same target as explicit weights, error asked for: 0.01",
            f"at most {bound['bound']:.3g} proved, {bound['attacked']:.2g} attacked",
            "no training; weights at most 1, float64",
            "`python benchmarks/certificates.py`",
        ],
        [
            "softmax attention Figure 2, the authors' published experiment again: points within two standard errors",
            find(published["item"]).judge(published)["Figure 2"].number.rpartition("; ")[2].partition(" points")[0],
            f"as published, {published['models']} models (three of the points are one), {published['scored']}",
            "`infoflow reproduce softmax_attention/figure2 --preset paper`",
        ],
        [
            "trained one-layer networks (T = 8 to 64) whose largest error is proved within twice the attacked one",
            f"{proofs['within_2']} of {proofs['networks']}, median factor {proofs['median_ratio']:.2f}, "
            f"{proofs['false_bounds']} false",
            f"{proofs['networks']} of {sweep['drawn']} drawn, a second attack of {times['second_attack']:g} s on each",
            "`python benchmarks/proofs_sweep.py`",
        ],
        [
            "drawn questions on which `predict` and `build` disagree",
            f"{len(drawn['disagreements'])} of {drawn['draws']:,}",
            "from the whole grammar, half of them one step from what a builder needs",
            "`python benchmarks/predict_vs_build.py`",
        ],
        [
            "tiny models trained at once (D = 2, T = 64, H200)",
            f"{speed['rates']['ours']:,.0f} model-steps a second, {speed['ratio']:.0f} times a module per seed",
            "AdamW, batch 256, float32",
            "`python benchmarks/train.py`",
        ],
        [
            "a prediction for T = 1,000,000",
            f"{1000 * max(walls):.0f} ms",
            f"the slowest of {len(walls)} targets",
            "`python benchmarks/flow.py`",
        ],
    ]
    return markdown(["what", "measured", "how", "again"], rows)


@table("benchmarks/results/train_cuda.json")
def training_scaling(payload: Recorded) -> Shown:
    """Model-steps per second against the number of stacked models, one row per D."""
    counts = list(next(iter(payload["workloads"].values()))["scaling"])
    rows = [
        [D, *(f"{found['scaling'][count]:,.0f}" for count in counts), f"{found['floor']['fraction']:.0%}"]
        for D, found in payload["workloads"].items()
    ]
    head = ["D", *(f"{count} models" for count in counts), "of the floor"]
    return head, rows


@table("benchmarks/results/kernels_cuda.json")
def kernel_accuracy(payload: Recorded) -> Shown:
    """Largest relative error of outputs and gradients of the token layer; in brackets where the pool is plain."""
    rows = [row for row in payload["rows"] if row["kernel"] == "layer"]
    lengths = sorted({row["T"] for row in rows})
    worst = {(row["D"], row["T"]): (row["worst"], row["pool"]) for row in rows}
    shown = {key: number(value) if pool == "fused" else f"({number(value)})" for key, (value, pool) in worst.items()}
    return ["D", *(f"T = {T}" for T in lengths)], [
        [D, *(shown[D, T] for T in lengths)] for D in sorted({row["D"] for row in rows})
    ]


@table("benchmarks/results/faults.json")
def faults(payload: Recorded) -> Shown:
    """What was broken, how often, and what came out; each kind with the call that tried it."""
    rows = [
        [*name.split(": ", 1), count, f"`{kind['provenance']['command']}`, {kind['provenance']['commit']}"]
        for kind in payload["kinds"].values()
        for name, count in kind["counts"].items()
    ]
    return ["fault", "came out", "times", "call, commit"], rows


@table("benchmarks/results/labels.json")
def labels(payload: Recorded) -> Shown:
    seconds, faster = payload["seconds"], payload["times_faster"]
    rows = [
        [words, f"{seconds[name]:.1f} s", f"{faster[f'{name}_than_plain']:.0f}", f"{faster[f'{name}_than_tuned']:.1f}"]
        for name, words in (("search", "where a C compiler is found"), ("search_without_compiler", "without one"))
    ]
    head = ["labels", "100,000 sequences", "times faster than enumeration", "than enumeration tuned by hand"]
    return head, rows


@table("benchmarks/results/flow.json")
def flow(payload: Recorded) -> Shown:
    slowest = max(payload["prediction_seconds_at_T_1000000"].values(), key=lambda s: s["wall"])
    sets = payload["flow"]
    rows = [
        ["a whole prediction at T = 1,000,000, slowest of five", f"{1000 * slowest['wall']:.0f} ms"],
        [
            f"information sets, T = {sets['T']}, {sets['layers']} layers, {sets['heads']} heads",
            f"{sets['seconds']['wall']:.2g} s, {sets['peak_megabytes_of_the_process']:.0f} MB",
        ],
        ["import infoflow", f"{payload['process_seconds']['import infoflow']:.2g} s"],
    ]
    return ["what", "measured"], rows


@table
def table11() -> str:
    """The printed means beside ours of both presets, and where our recipe differs from print."""
    from infoflow.lab.registry import find

    payload = recorded("results/infoflow/table11/best/result.json")
    as_printed = recorded("results/infoflow/table11/paper/result.json")
    ours = {(row["D"], row["heads"]): row for row in as_printed["rows"]}
    body = [
        [row["D"], row["heads"], number(row["paper mean"]),
         *("{mean:.3g} ± {std:.1g}".format(**found) for found in (ours[row["D"], row["heads"]], row)),
         number(row["median"]), row["predicted"]]
        for row in payload["rows"]
    ]  # fmt: skip
    head = ["D", "heads", "printed", "`paper`", "`best`", "`best`, median", "predicted"]
    said = (
        f"\n`paper`: {as_printed['protocol']}; measured on {as_printed['scored']}. `best` differs from print: "
        f"{'; '.join(find('infoflow/table11').differences)}. Its numbers were measured on {payload['scored']}.\n"
    )
    return markdown(head, body) + said + source(as_printed) + source(payload)


@table("results/head_count/synthetic/paper/result.json")
def heads(payload: Recorded) -> Shown:
    """NMSE of a sum of four maxima by head count, one row per length."""
    found = {(row["T"], row["h"]): row["mean"] for row in payload["rows"] if row["N"] == 128}
    counts = sorted({h for _, h in found})
    rows = [[T, *(f"{found[T, h]:.1e}" for h in counts)] for T in sorted({T for T, _ in found})]
    return ["T", *(f"{h} head{'s' * (h > 1)}" for h in counts)], rows


TABLES |= {
    f"recipes_D{D}": plain(
        f"benchmarks/results/recipes_D{D}_cuda.json",
        "rate | decay | warm-up | initial scale | stuck | median of the best NMSE | worst",
        "{lr:g} | {decay:g} | {warm_up} | {init_scale:g} | {stuck} of {models} | {median:.1e} | {best[-1]:.1e}",
    )
    for D in (3, 6)
}
TABLES |= {
    "tasks": plain(  # each named task at its stated size
        "benchmarks/results/tasks.json",
        "call | steps | least error of each seed | of the best constant",
        "`{command}` | {steps:,} | {best:.2g, of each} | {baseline:.2g}",
    ),
    "certificates": plain(
        "benchmarks/results/certificates.json",
        "target | T | asked | certified | attacked | ratio",
        "`{target}` | {T} | {eps:g} | {bound:.3g} | {attacked:.3g} | {ratio:.3g}",
        rows="table",
        where=lambda row: (row["target"], row["T"], row["eps"]) in CERTIFIED,
    ),
    "optimiser": plain(
        "benchmarks/results/optimiser.json",
        "stack | PyTorch's operations | one kernel | times",
        "{stack} | {plain:.2f} | {fused:.2f} | {times:.2f}",
    ),
    "collapse": plain(
        "benchmarks/results/collapse.json",
        "recipe | collapsed | returns | median of the best NMSE | worst",
        "{recipe} | {collapsed} of {models} | {rollbacks} | {median:.1e} | {worst:.1e}",
    ),
    "listing": plain(
        "benchmarks/results/listing.json",
        "results | bytes each | to write | to list | to read and summarise",
        "{results:,} | {bytes_a_result:.0f} | {writing:.2f} s | {listing:.2f} s | {summary:.2f} s",
    ),
    "memory": plain(
        "benchmarks/results/memory.json",
        "model-steps a second on a CPU (peak: its memory) | default | kept | ratio",
        "{name} | {default:.0f} | {kept:.0f} | {ratio:.2f}",
    ),
    "tasks_speed": plain(
        "benchmarks/results/train_tasks_cpu.json",
        "task | a module per seed | ours | ours / module | by processor time | load of the machine",
        "`{task}` | {plain:,.0f} | {ours:,.0f} | {ratio:.2f} | {ratio_of_processor_time:.2f} | {load}",
    ),
    "tasks_speed_cuda": plain(
        "benchmarks/results/train_tasks_cuda.json",
        "task | a module per seed | ours | ours / module",
        "`{task}` | {plain:,.0f} | {ours:,.0f} | {ratio:.0f}",
    ),
}


@table("benchmarks/results/shapes_cuda.json")
def shapes(payload: Recorded) -> Shown:
    form = "{seconds:.1f} | {model_steps_per_second:,.0f} | {ratio:.1f}"
    rows = [[row["workers"] or "one after the other", *cells(form, row)] for row in reversed(payload["rows"])]
    return ["worker processes", "seconds", "model-steps a second", "times"], rows


def query_keys_on(device: str) -> Table:
    @measured(f"benchmarks/results/query_keys_{device}.json")
    def shown(payload: Recorded) -> Shown:
        rows = [
            [f"{row['lr']:g}", f"{row['lr'] * row['query_key_rate']:g}", f"{row['median']:.1e}",
             f"{min(row['best']):.1e}", f"{max(row['best']):.1e}", f"{row['median ratio']:.2f}", row["rollbacks"]]
            for row in payload["rows"]
        ]  # fmt: skip
        head = ["rate", "of queries and keys", "median of the best NMSE", "least", "most", "argmax ratio", "returns"]
        return head, rows

    return shown


TABLES |= {f"query_keys_{device}": query_keys_on(device) for device in ("cpu", "cuda")}


@table("benchmarks/results/query_keys_stopped.json")
def query_keys_stopped(payload: Recorded) -> Shown:
    rows = [
        [row["epoch"], *(", ".join(f"{best:.1e}" for best in row[name]) for name in ("one rate", "two rates")),
         f"{sum(row['one rate']) / sum(row['two rates']):.1f}"]
        for row in payload["rows"]
    ]  # fmt: skip
    return ["epoch of 4500", "NMSE with one rate, 1e-2", "with 3e-3, queries and keys 3e-2", "times lower"], rows


@table
def followed() -> str:
    """Networks with a head for every maximum in both layers, against the others, by D."""
    rows = []
    for D in (2, 3, 4):
        payload = recorded(f"benchmarks/results/followed_D{D}.json")
        all_found = [row for row in payload["rows"] if not row["missed"]]
        others = [row for row in payload["rows"] if row["missed"]]
        least = min(min(row["first"] + row["second"]) for row in all_found)
        rows.append([D, *_followed(all_found), f"{least:.2f}", *_followed(others)])
    head = ["D", "all maxima followed", "NMSE", "argmax ratio", "least share", "some missed", "NMSE", "argmax ratio"]
    return markdown(head, rows) + source(payload)


def _followed(rows: list[Any]) -> tuple[int, str, str]:
    """How many, their NMSE, and the recovery error of their heads over its value before training."""
    ratios = [ratio for row in rows for ratio in row["argmax"]]
    return len(rows), f"{rows[0]['best']:.1e} to {rows[-1]['best']:.1e}", f"{min(ratios):.2f} to {max(ratios):.2f}"


@table
def house() -> str:
    """The measures of benchmarks/house.py, before the redesign and now, and the lines of every room."""
    payload = recorded("benchmarks/results/house.json")
    before, now = payload["before"], payload["now"]
    rows = [[name, f"{before[name]:,}", f"{now[name]:,}"] for name in now if isinstance(now[name], int)]
    rooms = sorted({*before["lines by room"], *now["lines by room"]})
    lines = [
        [f"lines of `{room}`", *(f"{of['lines by room'].get(room, 0):,}" for of in (before, now))] for room in rooms
    ]
    return markdown(["measure", "before", "now"], rows + lines) + source(now)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        name = match.group(2)
        if name not in TABLES:
            raise SystemExit(f"tables: no table is called {name!r}")
        return match.group(1) + TABLES[name]() + match.group(3)

    return VALUE.sub(
        lambda found: f"{found[1]}{value(found[2], found[3], found[4])}{found[5]}", MARK.sub(replace, text)
    )


def value(name: str, path: str, form: str) -> str:
    """One recorded number inside a sentence: `<!--= probes_stories joint mechanisms points -1 cost | .3f -->`.

    The words go down into benchmarks/results/NAME.json: a key, the place in a list, or `mode=deleted,scope=all` for the
    entry of a list that has these. With `/` between two ways down it is their ratio. The form is Python's, `list` or
    `count`.
    """
    numbers = [_down(recorded(f"benchmarks/results/{name}.json"), shlex.split(way)) for way in path.split(" / ")]
    if form in ("list", "count"):
        return " ".join(map(str, numbers[0])) if form == "list" else str(len(numbers[0]))
    return format(numbers[0] if len(numbers) == 1 else numbers[0] / numbers[1], form)


def _down(found: Any, words: list[str]) -> Any:
    for word in words:
        if isinstance(found, list) and "=" in word:
            wanted = dict(pair.split("=") for pair in word.split(","))
            found = next(entry for entry in found if all(str(entry[key]) == wanted[key] for key in wanted))
        else:
            found = found[int(word) if isinstance(found, list) else word]
    return found


def main() -> None:
    for path in sorted(Path(__file__).parent.glob("*_tables.py")):  # beside this file; they use the helpers above
        TABLES.update(import_module(path.stem).TABLES)
    from lab_tables import RECORDED
    from lab_tables import recorded as lab_recorded
    from web_data import texts as web_texts

    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        fresh = filled(text)
        if fresh != text:
            stale.append(page.relative_to(ROOT))
            if "--check" not in sys.argv:
                page.write_text(fresh, encoding="utf-8")
    for texts in (lambda: {RECORDED: lab_recorded()}, web_texts):  # in turn: the second reads what the first writes
        for path, fresh in texts().items():
            if not path.is_file() or path.read_text(encoding="utf-8") != fresh:
                stale.append(path.relative_to(ROOT))
                if "--check" not in sys.argv:
                    path.write_text(fresh, encoding="utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"tables: out of date in {', '.join(map(str, stale))}; run python docs/tables.py")


if __name__ == "__main__":
    main()
