"""The tables of docs/build.md and docs/refutations.md: the first report's numbers and ours, from
benchmarks/results/{certificates,refutations,fuzz_files}.json."""

from typing import Any

from tables import Recorded, Shown, cells, number, registry

TABLES, table = registry()
CERTIFICATES = "benchmarks/results/certificates.json"
FUZZ = "benchmarks/results/fuzz_files.json"
REFUTATIONS = "benchmarks/results/refutations.json"
MUTANTS = "benchmarks/results/mutants.json"
LIES = "benchmarks/results/lies.json"
BOUNDS = ("bound", "bound within what was asked", "bound above what was asked")  # the words of the record


def _widths(widths: list[int]) -> str:
    return " + ".join(map(str, widths))


def _said(found: Recorded, names: tuple[tuple[str, ...], ...], all_words: str) -> list[list[Any]]:
    """How often each was said of the files of a kind, and of all."""
    rows = [
        [kind, row["files"], *(sum(row.get(word, 0) for word in words) for words in names)]
        for kind, row in found.items()
    ]
    return [*rows, [all_words, *(sum(column) for column in list(zip(*rows, strict=True))[1:])]]


@table(FUZZ)
def fuzz_files(payload: Recorded) -> Shown:
    """What was said about damaged files, by kind of damage; `false or broken` is anything but a refusal or a truth."""
    names = (("refused",), ("does not hold",), ("holds", "holds if"), ("failed",))
    memory = f"**all, at most {payload['largest_memory'] / 2**30:.2f} GiB**"
    head = ["damage", "files", "refused", "does not hold", "holds", "false or broken"]
    return head, _said(payload["by_damage"], names, memory)


@table(LIES)
def lies(payload: Recorded) -> Shown:
    """What was said about files made to fool a proof, by kind of network."""
    names = (("refused",), ("nothing proved",), BOUNDS, ("failed",))
    head = ["network", "files", "refused", "nothing proved", "a bound, and true", "false or broken"]
    return head, _said(dict(sorted(payload["groups"].items())), names, "**all**")


@table(CERTIFICATES)
def first_theorem_4(payload: Recorded) -> Shown:
    """The Theorem 4 network: worst attacked error over T = 4, 16, 64."""
    report, rows = payload["first_report"], []
    plain = {r["eps"]: r for r in report["plain"] if r["T"] == 4}
    for eps in dict.fromkeys(r["eps"] for r in report["theorem_4"]):
        own = [r for r in report["theorem_4"] if r["eps"] == eps]
        first = own[0]
        bounds = first["first_bound"], max(r["bound"] for r in own)
        attacked = first["first_attacked"], max(r["attacked"] for r in own)
        widths = [_widths(of[name]) for of in (first, plain[eps]) for name in ("first_widths", "widths")]
        rows.append([f"{eps:g}", *map(number, (*bounds, *attacked)), *widths])
    head = ["eps", "bound: first", "ours", "attacked: first", "ours", "widths: first", "ours", "plain: first", "ours"]
    return head, rows


@table(CERTIFICATES)
def first_networks(payload: Recorded) -> Shown:
    """Every other attacked network of the first report."""
    words = {"pairs": "eq. (6)", "star": "star of 3", "plain": "Theorem 4, plain rule"}
    form = "`{target}` | {T} | {eps:g} | {first_attacked:.3g} | {attacked:.3g} | {bound:.3g}"
    rows = [
        [words[kind], *cells(form, r), _widths(r["widths"])]
        for kind in words
        for r in payload["first_report"][kind]
        if r["first_attacked"] is not None
    ]
    return ["network", "target", "T", "eps", "attacked: first", "ours", "our bound", "our widths"], rows


@table(CERTIFICATES)
def first_one_layer(payload: Recorded) -> Shown:
    form = "{eps:g} | {first_error:.3g} | {attacked:.3g} | {bound:.3g} | {widths[0]}"
    found = payload["first_report"]["one_layer"]
    rows = [["with" if "sets" in r["target"] else "without", *cells(form, r)] for r in found]
    return ["position sets", "eps", "sampled: first", "attacked: ours", "bound", "width"], rows


@table(REFUTATIONS)
def first_collisions(payload: Recorded) -> Shown:
    rows = []
    for r in payload["collisions"]:
        fits = [m["nmse"] for m in r["by_model"] if m["nmse"] is not None]
        kind = f"trained, NMSE {min(fits):.2g} to {max(fits):.2g}" if fits else "random"
        shape = f"T={r['T']}, {r['heads']} heads of {r['head_dim']}" + ", positions" * (r["positions"] != "none")
        spread = f"{number(r['smallest_gap'])} to {number(r['largest_gap'])}"
        rows.append([f"`{r['target']}`", shape, kind, number(r["first_gap"]), number(r["median_gap"]), spread,
                     f"{r['proved']} of {r['models']}", f"{r['largest_state_distance']:.0e}"])  # fmt: skip
    head = ["target", "model", "state", "gap: first", "median", "all", "proved", "states apart"]
    return head, rows


@table(REFUTATIONS)
def first_limits(payload: Recorded) -> Shown:
    forms = {
        "power_sums": "power sums, {n} of them, b={b:g}, second largest of 8: gap | {first_gap:.3g} | {gap:.3g}",
        "birthdays": "by chance, {samples:,} inputs, `{target}`, a {kind} state of {head_dim} numbers, targets 0.1 "
        "apart: distance of the states | {first_distance:.3g} | {distance_at_gap:.3g}",
        "built": "built network `{target}`, T={T}, eps={eps:g}, bound {bound:.3g}: gap, at most twice the bound | "
        "{first_gap:.3g} | {gap:.3g}",
    }
    for r in payload["birthdays"]:
        r |= {"kind": "trained" if r["steps"] else "random", "distance_at_gap": r["distance_at_gap_0.1"]}
    return ["what", "first", "ours"], [cells(form, r) for part, form in forms.items() for r in payload[part]]


@table(REFUTATIONS)
def first_single_heads(payload: Recorded) -> Shown:
    remembers = (
        "remembers, parameters merged / bottleneck | {eps:g} | "
        "{first_error:.3g} with {first_parameters_merged:,.0f} / {first_parameters_bottleneck:,.0f} | "
        "at most {bound_at_first_error:.3g} with {parameters_merged_at_first_error:,} / "
        "{parameters_bottleneck_at_first_error:,} | "
        "{error:.3g} with {parameters_merged:,} / {parameters_bottleneck:,}"
    )
    exponentials = (
        "exponentials, units a coordinate | {eps:g} | {first_error:.3g} with {first_units} | {error:.3g} with {units} "
        "| {least[error]:.3g} with {least[units]}"
    )
    rows = [cells(remembers, r) for r in payload["single_heads"]["memory_head"]]
    sizes = payload["single_heads"]["exponential_head"]
    for r in (r for r in sizes if r["units"] == r["first_units"]):
        least = next(other for other in sizes if other["eps"] == r["eps"] and other["units"] != r["units"])
        rows.append(cells(exponentials, {**r, "least": least}))
    return ["head", "eps", "first: error", "ours at its error or size", "ours at eps"], rows


@table(REFUTATIONS)
def first_codec(payload: Recorded) -> Shown:
    form = "{m} | {n} | {ratio:.3g} | {first_slope:.3g} | {slope:.3g} | {sup:.3g}"
    found = [{**r, "ratio": r["m"] / r["n"], "sup": r["sup_error_times_2^L"]} for r in payload["codec_growth"]]
    return ["m", "n", "m/n", "growth: first", "ours", "sup error times 2^L"], [cells(form, r) for r in found]


@table(MUTANTS)
def mutants(payload: Recorded) -> Shown:
    """How many mutants of every module were run, killed, are equivalent or prove the same, and are left; the score."""
    rows = [[f"`{name}`", *_counts(found)] for name, found in payload["modules"].items()]
    run, killed, equivalent, *_ = total = _counts(payload)
    score = f"{killed / run:.1%} of all, {killed / (run - equivalent):.1%} of those that are not equivalent"
    head = ["module", "mutants run", "killed", "equivalent", "proves the same", "left"]
    return head, [*rows, ["**all**", *total], ["**killed**", score, "", "", "", ""]]


def _counts(found: Recorded) -> list[int]:
    run, killed, explained, equivalent = (found[name] for name in ("run", "killed", "explained", "equivalent"))
    return [run, killed, equivalent, explained - equivalent, run - killed - explained]


@table(MUTANTS)
def surviving_mutants(payload: Recorded) -> Shown:
    """Every mutant that no test kills, with the reason."""
    rows = [
        [f"`{found['module']}:{found['line']}`", f"`{_one_line(found['before'])}`", f"`{_one_line(found['after'])}`",
         found["reason"]]
        for found in payload["mutants"]
        if not found["killed"]
    ]  # fmt: skip
    return ["where", "code", "mutant", "why no test tells them apart"], rows


def _one_line(code: str) -> str:
    return " ".join(code.split("  #")[0].split()).replace("|", "\\|")
