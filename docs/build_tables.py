"""The tables of docs/build.md and docs/refutations.md: the first report's numbers and ours, from
benchmarks/results/{certificates,refutations,fuzz_files}.json."""

from tables import Recorded, Shown, measured, number, registry

TABLES, table = registry()
CERTIFICATES = "benchmarks/results/certificates.json"
FUZZ = "benchmarks/results/fuzz_files.json"
REFUTATIONS = "benchmarks/results/refutations.json"
MUTANTS = "benchmarks/results/mutants.json"
LIES = "benchmarks/results/lies.json"
BOUNDS = ("bound", "bound within what was asked", "bound above what was asked")  # the words of the record


def _widths(widths: list[int]) -> str:
    return " + ".join(map(str, widths))


@table
@measured(FUZZ)
def fuzz_files(payload: Recorded) -> Shown:
    """What was said about damaged files, by kind of damage; `false or broken` is anything but a refusal or a truth."""
    names = (("refused",), ("does not hold",), ("holds", "holds if"), ("failed",))
    rows = [
        [damage, row["files"], *(sum(row.get(word, 0) for word in words) for words in names)]
        for damage, row in payload["by_damage"].items()
    ]
    totals = [sum(row[column] for row in rows) for column in range(1, len(names) + 2)]
    memory = f"**all, at most {payload['largest_memory'] / 2**30:.2f} GiB**"
    head = ["damage", "files", "refused", "does not hold", "holds", "false or broken"]
    return head, [*rows, [memory, *totals]]


@table
@measured(LIES)
def lies(payload: Recorded) -> Shown:
    """What was said about files made to fool a proof, by kind of network."""
    names = (("refused",), ("nothing proved",), BOUNDS, ("failed",))
    rows = [
        [group, row["files"], *(sum(row.get(word, 0) for word in words) for words in names)]
        for group, row in sorted(payload["groups"].items())
    ]
    totals = [sum(row[column] for row in rows) for column in range(1, len(names) + 2)]
    head = ["network", "files", "refused", "nothing proved", "a bound, and true", "false or broken"]
    return head, [*rows, ["**all**", *totals]]


@table
@measured(CERTIFICATES)
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


@table
@measured(CERTIFICATES)
def first_networks(payload: Recorded) -> Shown:
    """Every other attacked network of the first report."""
    report = payload["first_report"]
    words = {"pairs": "eq. (6)", "star": "star of 3", "plain": "Theorem 4, plain rule"}
    rows = [
        [words[kind], f"`{r['target']}`", r["T"], f"{r['eps']:g}", number(r["first_attacked"]), number(r["attacked"]),
         number(r["bound"]), _widths(r["widths"])]
        for kind in words
        for r in report[kind]
        if r["first_attacked"] is not None
    ]  # fmt: skip
    head = ["network", "target", "T", "eps", "attacked: first", "ours", "our bound", "our widths"]
    return head, rows


@table
@measured(CERTIFICATES)
def first_one_layer(payload: Recorded) -> Shown:
    rows = [
        ["with" if "sets" in r["target"] else "without", f"{r['eps']:g}", number(r["first_error"]),
         number(r["attacked"]), number(r["bound"]), r["widths"][0]]
        for r in payload["first_report"]["one_layer"]
    ]  # fmt: skip
    head = ["position sets", "eps", "sampled: first", "attacked: ours", "bound", "width"]
    return head, rows


@table
@measured(REFUTATIONS)
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


@table
@measured(REFUTATIONS)
def first_limits(payload: Recorded) -> Shown:
    rows = []
    for r in payload["power_sums"]:
        words = f"power sums, {r['n']} of them, b={r['b']:g}, second largest of 8: gap"
        rows.append([words, number(r["first_gap"]), number(r["gap"])])
    for r in payload["birthdays"]:
        kind = "trained" if r["steps"] else "random"
        model = f"`{r['target']}`, a {kind} state of {r['head_dim']} numbers"
        words = f"by chance, {r['samples']:,} inputs, {model}, targets 0.1 apart: distance of the states"
        rows.append([words, number(r["first_distance"]), number(r["distance_at_gap_0.1"])])
    for r in payload["built"]:
        network = f"`{r['target']}`, T={r['T']}, eps={r['eps']:g}, bound {number(r['bound'])}"
        words = f"built network {network}: gap, at most twice the bound"
        rows.append([words, number(r["first_gap"]), number(r["gap"])])
    return ["what", "first", "ours"], rows


@table
@measured(REFUTATIONS)
def first_single_heads(payload: Recorded) -> Shown:
    heads = payload["single_heads"]
    rows = []
    for r in heads["memory_head"]:
        merged, bottleneck = r["first_parameters_merged"], r["first_parameters_bottleneck"]
        same = f"{r['parameters_merged_at_first_error']:,} / {r['parameters_bottleneck_at_first_error']:,}"
        rows.append(
            [
                "remembers, parameters merged / bottleneck",
                f"{r['eps']:g}",
                f"{number(r['first_error'])} with {merged:,.0f} / {bottleneck:,.0f}",
                f"at most {number(r['bound_at_first_error'])} with {same}",
                f"{number(r['error'])} with {r['parameters_merged']:,} / {r['parameters_bottleneck']:,}",
            ]
        )
    for r in heads["exponential_head"]:
        if r["units"] != r["first_units"]:
            continue
        least = next(o for o in heads["exponential_head"] if o["eps"] == r["eps"] and o["units"] != r["units"])
        rows.append(
            [
                "exponentials, units a coordinate",
                f"{r['eps']:g}",
                f"{number(r['first_error'])} with {r['first_units']}",
                f"{number(r['error'])} with {r['units']}",
                f"{number(least['error'])} with {least['units']}",
            ]
        )
    head = ["head", "eps", "first: error", "ours at its error or size", "ours at eps"]
    return head, rows


@table
@measured(REFUTATIONS)
def first_codec(payload: Recorded) -> Shown:
    rows = [
        [r["m"], r["n"], number(r["m"] / r["n"]), number(r["first_slope"]), number(r["slope"]),
         number(r["sup_error_times_2^L"])]
        for r in payload["codec_growth"]
    ]  # fmt: skip
    return ["m", "n", "m/n", "growth: first", "ours", "sup error times 2^L"], rows


@table
@measured(MUTANTS)
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


@table
@measured(MUTANTS)
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
