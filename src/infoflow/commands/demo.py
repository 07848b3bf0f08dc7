"""infoflow demo: a tour on a default that needs nothing; one report with its figures inline.

Each part is a function that returns a section of the report; `PARTS` is the tour.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from infoflow.architecture import Architecture, matched_embed
from infoflow.commands.options import emit, json_option, out_option
from infoflow.flow.trace import trace
from infoflow.installation import activation, runnable
from infoflow.progress import Progress
from infoflow.report import html, style
from infoflow.targets import pairwise_max, parse, triangle_center
from infoflow.verdicts.estimate import Count
from infoflow.verdicts.plan import plan
from infoflow.verdicts.predict import Prediction, predict
from infoflow.verdicts.scale import scale

D, T = 4, 64
EQ6 = pairwise_max(D=D, d=4, seed=0)
LEAD = "Know what a Transformer can compute before you train it, and get the proof as weights."
QUESTION = f"""How many heads does this task need?
F(X) = sum over i = 1..{D} of max over s, t of x(s)' A_i x(t), on sequences of {T} tokens (the InfoFlow paper's eq. (6))
"""
NEXT = (
    "infoflow predict pairwise_max:D=4,d=4 heads=1,1,1,1,1 embed=24 -T 64",
    "infoflow build pairwise_max:D=4,d=4 -T 64 --eps 0.01 --out out/ && infoflow certify out/*.safetensors --seconds 5",
    "infoflow reproduce infoflow/figures",
)
ATTACK_SECONDS, REFUTE_SECONDS = 5.0, 8.0
TRAINED = Path(__file__).parent / "networks" / "three_heads.safetensors"


def _join(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


def predictions() -> html.Section:
    """Eq. (6) with D = 4 for the three architectures of the paper's experiment."""
    found = [_predicted(heads) for heads in ((4, 4), (3, 4), (4, 3))]
    section = html.Section("Predictions: how many heads does eq. (6) need?")
    section.text(
        f"The target is F(X) = sum over i = 1..{D} of max over s, t of x(s)'A_i x(t), tokens of dimension 4, T = {T}. "
        "A verdict is constructed (explicit weights exist), proved hard (a theorem excludes small read-outs) or open; "
        "counting and flow are the framework's estimates, as exponents of 1/eps."
    )
    head = ["heads", "embed", "verdict", "widths", "certified error", "counting", "flow"]
    section.table(head, [_row(p) for p in found])
    for p in found:
        heads = ",".join(map(str, p.arch.heads))
        section.text(f"heads {heads}: {p.reasons[0]}")
        section.summary.append(f"predict  eq. (6), D={D}, T={T}, heads {heads}: {p.verdict}; {p.reasons[0]}")
    return section


def _predicted(heads: tuple[int, int]) -> Prediction:
    return predict(EQ6, Architecture(heads, tuple(matched_embed(D, h) for h in heads)), T)


def _row(p: Prediction) -> list[str]:
    join = ",".join
    made = p.constructed
    return [
        join(map(str, p.arch.heads)),
        join(map(str, p.arch.embeds)),
        p.verdict,
        "-" if made is None else join(map(str, made.widths)),
        "-" if made is None else f"{made.bound:.2g}",
        "infeasible" if p.counting.exponent is None else str(p.counting.exponent),
        str(p.flow.exponent),
    ]


def plans() -> html.Section:
    """Depth can stand in for heads."""
    found = plan(EQ6, T)
    section = html.Section("Plan: architectures that no other one beats")
    section.text(
        "Layers, heads, embedding and parameters trade against each other: one head per layer is enough in five layers."
    )
    rows = [[",".join(map(str, o.heads)), ",".join(map(str, o.embed)), *o.measures, o.reason] for o in found.options]
    section.table(["heads", "embed", "layers", "total heads", "sum of embed", "parameters", "why"], rows)
    section.summary.append("plan     heads " + " or ".join(str(row[0]) for row in rows))
    return section


def flow() -> html.Section:
    """One input, traced."""
    section = html.Section("Trace: where the information goes for one input")
    short = trace(EQ6, Architecture((4, 4), 24), EQ6.sample(1, 8, seed=0)[0])
    section.text(
        "Every token starts with itself. A head joins the set of the token that wins its comparison. Ringed positions "
        "are active (the target changes with them); blue is what the read-out ends up knowing."
    )
    learned = "learned" if short.learns else "missed"
    section.figure("flow", short.figure(), f"Information sets of one input, T = 8: the active set is {learned}.")
    long = trace(EQ6, Architecture((4, 4), 24), EQ6.sample(1, T, seed=0)[0])
    section.figure("flow-long", long.figure(), f"The same target on one input of T = {T} tokens.")
    section.summary.append(f"trace    one input of T=8 and one of T={T}: the active set is {learned}")
    return section


def scaling() -> html.Section:
    """The triangle target: where the counting exponent turns positive depends on the count."""
    section = html.Section("Scale: the triangle target against the sequence length")
    arch = Architecture((2, 2), 24)
    lengths = [8, 16, 32, 64, 128, 256, 512, 1024]
    counts: tuple[Count, ...] = ("ordered", "lower")
    found = {count: scale(triangle_center(), arch, lengths, count) for count in counts}
    section.table(
        ["count", "first T with a positive exponent"], [[name, s.first_positive_T] for name, s in found.items()]
    )
    caption = "Exponents of the triangle target, heads 2,2, E = 24 (estimates, by the paper's ordered count)."
    section.figure("scale", found["ordered"].figure(), caption)
    firsts = ", ".join(f"T={s.first_positive_T} ({name})" for name, s in found.items())
    section.summary.append(f"scale    triangle target: counting turns positive at {firsts}")
    return section


def weights() -> html.Section:
    """The proof as weights: eq. (6) compiled, its certificate recomputed from the tensors and attacked."""
    from infoflow.compiler.certification import certify
    from infoflow.construct.builders import build

    eps = 1e-2
    network: Any = build(EQ6, T, eps)
    certificate = certify(network, EQ6, T, seconds=ATTACK_SECONDS)
    config = network.config
    section = html.Section("Build and certify: the same target as explicit weights")
    section.text(
        f"No training: every weight is written down, none above 1, heads {_join(config.heads)}, embed "
        f"{_join(config.embed)}, widths {_join(config.widths)}; the softmax scale is {config.betas[0]:.4g}. The bound "
        "is recomputed from the stored tensors, then gradient ascent looks for an input that breaks it."
    )
    rows = [
        ["asked", f"{eps:g}"],
        ["certified: error at most, on every input of the box", f"{certificate.bound:.4g}"],
        ["largest error an attack found", f"{certificate.attacked:.4g}"],
        ["bound / attacked", f"{certificate.ratio:.3g}"],
        ["certificate", "holds" if certificate.holds else "DOES NOT HOLD"],
    ]
    section.table(["", ""], rows)
    section.figure("errors", _errors(network, certificate), "Error of the built network on random inputs.")
    section.summary.append(
        f"build    eq. (6), T={T}: heads {_join(config.heads)}, widths {_join(config.widths)}, "
        f"certified error {certificate.bound:.4g}"
    )
    section.summary.append(
        f"certify  {'holds' if certificate.holds else 'DOES NOT HOLD'}; the attack reached {certificate.attacked:.4g}"
    )
    return section


def _errors(network: Any, certificate: Any) -> Any:
    import torch

    X = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (2000, T, EQ6.dim)))
    with torch.no_grad():
        errors = (network(X) - EQ6(X)).numpy()
    figure, axes = style.figure(6.4, 2.8)
    axes.hist(errors, bins=60, color=style.COLOURS[0])
    for sign in (-1, 1):
        axes.axvline(sign * certificate.bound, color=style.COLOURS[1])
        axes.axvline(sign * certificate.attacked, color=style.COLOURS[1], ls=":")
    axes.set_xlabel("network - target (lines: certified bound; dotted: largest error an attack found)")
    axes.set_ylabel("inputs of 2000")
    return figure


def collision() -> html.Section:
    """A trained model that explains 99% of the variance, and two inputs it cannot tell apart.

    The network lies beside this file, as `infoflow fit` stored it; its header holds the run that made it.
    """
    from infoflow.nn.files import load
    from infoflow.refutations import NoCollision, refute
    from infoflow.refutations.figures import collision_figure

    network = load(TRAINED)
    header = network.header
    target, length, error = parse(header["target"]), header["T"], header["nmse"]
    found = refute(network, target, length, seconds=REFUTE_SECONDS)
    section = html.Section("Refute: two inputs that a trained model cannot tell apart")
    section.text(
        "A sum of four maxima asks for four heads. A network with three was trained on it, and trained well: its "
        f"validation NMSE is {error:.2g}, so it explains {1 - error:.0%} of the variance. Still, two sequences with "
        "different targets leave it in the same state. Whatever is computed from that state is wrong on one of them."
    )
    if isinstance(found, NoCollision):
        section.text(f"No pair was found in {REFUTE_SECONDS:g} s: {found}")
        section.summary.append(f"refute   {found}")
        return section
    section.code(str(found))
    section.figure("collision", collision_figure(found), "The pair, the states the read-out sees, the targets.")
    proof = "proved" if found.certified_error is not None else "numerical"
    section.summary.append(
        f"refute   three heads trained on a sum of four maxima (NMSE {error:.2g}): two inputs with one state, targets "
        f"{found.gap:.3g} apart, so some error is at least {found.gap / 2:.3g} ({proof})"
    )
    return section


PARTS: dict[str, Callable[[], html.Section]] = {
    "predict": predictions,
    "plan": plans,
    "trace": flow,
    "scale": scaling,
    "build": weights,
    "refute": collision,
}


@click.command("demo")
@out_option("out/demo")
@json_option
def command(out: Path, as_json: bool) -> None:
    """A tour: predictions, one input traced, weights with their certificate, a refutation; one report."""
    sections = []
    with Progress("demo", len(PARTS)) as bar:
        for number, (name, part) in enumerate(PARTS.items()):
            bar.update(number, name)
            sections.append(part())
    figures = [path for s in sections for name, made in s.figures for path in style.save(made, out / name, ("svg",))]
    report = html.write(out / "report.html", "InfoFlow: a tour", LEAD, sections)
    following = [runnable(line) for line in NEXT]
    if as_json:
        emit({"report": report, "figures": figures, "parts": list(PARTS), "next": following})
        return
    click.echo(QUESTION)
    for line in (line for section in sections for line in section.summary):
        click.echo(line)
    click.echo(f"\nReport: {report}\nFigures: {', '.join(path.name for path in figures)} in {out}\n\nNext, try:")
    for line in following:
        click.echo(f"  {line}")
    if activation() is not None:
        click.echo(f"\nTo type just `infoflow` in this shell: {activation()}")
