"""What predict says against what build does, on targets and architectures drawn from the whole grammar.

    python benchmarks/predict_vs_build.py [--draws 2000] [--seed 0]     writes benchmarks/results/predict_vs_build.json

A draw agrees when `constructed` is said exactly where `build` succeeds for the same call, with the same certified
bound, at most eps, by a network of a shape that fits, whose error on random inputs is within the bound and of which
`certify` says that it holds; when `proved hard` is said only where width and embedding are stated and the width is
below the proved one; and when no network is built that a theorem excludes. Half of the architectures are drawn near
what the target needs, where verdicts change.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoflow import Architecture, targets
from infoflow.commands.own_code import asked_target
from infoflow.compiler.certification import certify
from infoflow.compiler.compile import largest_weight, report_of
from infoflow.compiler.offer import Offer, Question
from infoflow.construct.builders import answers, build
from infoflow.errors import InfoFlowError
from infoflow.files import write_json
from infoflow.nn import Transformer
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.targets import Target
from infoflow.verdicts.predict import Prediction, predict

RESULTS = Path(__file__).parent / "results" / "predict_vs_build.json"
POSITIONS = ("none", "additive", "augmented", "joint")
RECORDED = 100  # draws after which the record is written
UNIFORM = ("exponential_head", "memory_head")  # how their values are spread over heads does not matter

# A user's own targets: zero, rank-deficient and symmetric matrices, unary scores, minima beside maxima, position sets,
# different positions, outer maps that are polynomials or functions, scores that are functions.
USERS_FILE = """
import numpy as np
from infoflow.targets import *

def pairs(*matrices, kind="max", **options):
    return Target.sum(*(Extremum(TreeScore.bilinear(A), kind, **options) for A in matrices))

def tree(A, u, v):
    quadratic = Polynomial.quadratic(np.diag(u))
    return TreeScore((quadratic, Polynomial.linear(np.array([v]))), (Edge(0, 1, *factor(A)),), len(u))

rng = np.random.default_rng(7)
A, B, one = rng.standard_normal((2, 2)), rng.standard_normal((2, 2)), np.ones(2)
zero = pairs(np.zeros((2, 2)))
zero_beside = pairs(np.zeros((2, 2)), A)
rank_one = pairs(np.outer(A[0], B[0]), A)
nearly_singular = pairs(np.outer(A[0], B[0]) + 1e-13 * A)
symmetric = pairs(A + A.T, kind="min")
asymmetric = pairs(A, B, kind="min")
large = pairs(50.0 * A)
small = pairs(1e-6 * A)
unary = Target.sum(Extremum(tree(A, one, -one)), Extremum(tree(np.zeros((2, 2)), one, one), "min"))
constant = Target.sum(Extremum(TreeScore.linear(np.zeros(2))))
placed = pairs(A, sets=((0, 1), None))
different = pairs(A + A.T, distinct=True)
beside = Extremum(TreeScore.linear([1.0, -0.5]), sets=(slice(1, None),))
before = Target((ValueAtExtremum(beside, Polynomial.identity(2), shift=-1),), Polynomial.linear([[1.0, 2.0]]), 2)
cubic = Target.sum(Extremum(TreeScore((Polynomial([[3, 0], [1, 1]], [[1.0, -0.5]]),), (), 2), "min"))
line = Extremum(TreeScore.linear(np.ones(1)))
product = Target((line, Extremum(line.score, "min")), Polynomial([[1, 1], [1, 0]], [[1.0, 0.5]]), 1)
two_outputs = Target((line, Extremum(line.score, "min")), Polynomial.linear([[1.0, 2.0], [0.0, -1.0]]), 1)
ignored = Target((line, Extremum(line.score, "min")), Polynomial.linear([[1.0, 0.0]]), 1)
network = Target((line,), OuterNetwork(lambda v: v * v, lipschitz=4.0), 1)
shifted = Target.sum(line, domain=(3.0, 4.0))
far = Target((line,), Polynomial.affine_map([[1.0]], [40.0]), 1)
wave = Target.sum(Extremum(CallableScore(lambda x: x[..., 0, 0] ** 3, 1, 1, lipschitz=3.0)))
unknown = Target.sum(Extremum(CallableScore(lambda x: x[..., 0, 0] ** 3 - x[..., 1, 0], 2, 1)))
around = CallableScore(lambda x: abs(x[..., 0, 0] + x[..., 1, 0] - x[..., 2, 0]), 3, 1, lipschitz=1.0)
cycle = Target.sum(Extremum(around))
whole = function(lambda X: X.amax(-2).sum(-1) - X.mean((-1, -2)), d=2)
written = function(lambda x: (x[..., 0, :] * x[..., 1, :]).sum(-1).sin(), d=1, arity=2, extremum="max", lipschitz=1.0)
"""
USERS = [line.partition(" = ")[0] for line in USERS_FILE.splitlines() if " = " in line and line[0].isalpha()]
USERS = [name for name in USERS if name not in ("rng", "A, B, one", "line", "around", "beside")]


@dataclass(frozen=True)
class Call:
    target: Target
    arch: Architecture
    T: int
    eps: float
    weight_bound: float | None

    def __str__(self) -> str:
        name = Path(self.target.spelling).name
        return f"{name} {self.arch} T={self.T} eps={self.eps:g} weight_bound={self.weight_bound}"


class Draws:
    """Calls drawn by a seed; the user's file lives in `folder`."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = np.random.default_rng(seed)
        self.file = folder / "mine.py"
        self.file.write_text(USERS_FILE, encoding="utf-8")

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def call(self) -> Call:
        return self.hard() if self.rng.random() < 0.1 else self.usual()

    def hard(self) -> Call:
        """Where the theorems speak: one layer with too few heads, long sequences, a small eps."""
        d, heads = self.pick(1, 2, 3), self.pick(1, 1, 2)
        target = self.pick(targets.min_pair(d), targets.kth_largest(2, d), targets.d_retrieval(self.pick(2, 3), d))
        width = self.pick(None, 1, 100, 10_000, 1_000_000)
        arch = self.options((heads,), self.pick(None, (heads * self.pick(1, 2, 6),)), width)
        return Call(target, arch, self.pick(40, 64), self.pick(2e-3, 1e-4, 1e-6), self.pick(1, 1, 3.0, None))

    def usual(self) -> Call:
        target, T = self.target(), self.pick(4, 5, 8)
        eps, bound = self.pick(2.0, 0.5, 0.1, 0.02), self.pick(1, 1, 1, None, None, 3.0, 0.5, 1e6)
        near = self.rng.random() < 0.5
        arch = self.near(target, T, eps, bound) if near else self.architecture()
        return Call(target, arch, T, eps, bound)

    def target(self) -> Target:
        name = self.pick(*targets.NAMED, *["user"] * 8, *["d_retrieval"] * 3)
        d, D, seed = self.pick(1, 1, 2, 3), self.pick(1, 2, 3), int(self.rng.integers(5))
        sets = [sorted(set(self.rng.integers(4, size=2).tolist())) for _ in range(D)]
        keys: dict[str, dict[str, Any]] = {
            "d_retrieval": {"D": D, "d": d, "seed": seed, "sets": self.pick(None, sets)},
            "sum_of_maxima": {"D": D, "d": d, "seed": seed},
            "pairwise_max": {"D": min(D, 2), "d": min(d, 2), "seed": seed},
            "kth_largest": {"k": self.pick(1, 2, 3), "d": d},
            "position_sum": {"positions": sets[0], "d": d},
            "star": {"k": self.pick(2, 3), "d": min(d, 2), "seed": seed},
            "chain": {"length": self.pick(2, 3), "d": min(d, 2), "seed": seed},
            "max_plus_min": {},
            "value_at_argmax": {"d": self.pick(2, 3), "margin": self.pick(0.1, 0.5)},
            "after_match": {"d": self.pick(1, 2), "margin": self.pick(0.1, 0.5)},
            "recall": {"d": self.pick(1, 2), "margin": self.pick(0.1, 0.5)},
        }
        if name == "user":
            return asked_target(f"{self.file}:{self.pick(*USERS)}")
        return targets.NAMED[name].build(**keys.get(name, {"d": d}))

    def architecture(self) -> Architecture:
        heads = tuple(int(self.pick(1, 1, 2, 3, 4)) for _ in range(self.pick(1, 1, 2, 2, 3)))
        if len(heads) == 1 and self.rng.random() < 0.2:
            heads = (self.pick(16, 64, 256),)
        embed = self.pick(None, tuple(h * self.pick(1, 2, 3, 4, 8, 12) for h in heads))
        return self.options(heads, embed, self.pick(None, None, 4, 16, 64, 256, 2048))

    def options(self, heads: Any, embed: Any, width: Any) -> Architecture:
        kv = self.pick(*[None] * 9, tuple(1 for _ in heads))
        places, mask = self.pick("none", *POSITIONS), self.pick("none", "none", "causal")
        return Architecture(heads, embed, width, places, mask, kv, rotary=self.rng.random() < 0.03)

    def near(self, target: Target, T: int, eps: float, bound: float | None) -> Architecture:
        """An architecture that a builder would take, changed by little in one place."""
        offers = [
            a
            for a in answers(Question(target, T, eps, weight_bound=bound if bound is None else max(bound, 1.0)))
            if isinstance(a, Offer)
        ]
        if not offers:
            return self.architecture()
        offer = self.pick(*offers)
        heads, embed, widths = list(offer.heads), list(offer.embed), list(offer.widths)
        layer = int(self.rng.integers(len(heads)))
        what = self.pick("nothing", "embed", "width", "head", "layer")
        step = self.pick(-1, 1)
        if what == "head":
            per_head = embed[layer] // heads[layer]
            heads[layer] = max(1, heads[layer] + step)
            embed[layer] = heads[layer] * per_head
        elif what == "embed":
            embed[layer] = max(heads[layer], embed[layer] + step * heads[layer])
        elif what == "layer":
            heads, embed, widths = [*heads, 1], [*embed, 4], [*widths, 8]
        widths = [max(1, w + (step if what == "width" and i == layer else 0)) for i, w in enumerate(widths)]
        embed = [-(-e // h) * h for e, h in zip(embed, heads, strict=True)]
        arch = self.options(tuple(heads), self.pick(tuple(embed), None), self.pick(tuple(widths), None))
        return (
            arch.with_(positions="joint", width=None) if offer.builder == "memory_head" and arch.layers == 1 else arch
        )


def judge(call: Call) -> tuple[str, list[str]]:
    """The verdict (and the builder), and everything in which prediction and building disagree."""
    try:
        said = predict(call.target, call.arch, call.T, call.eps, call.weight_bound)
    except InfoFlowError:
        return "refused call", []
    made, wrong = None, _wrong_words(said)
    try:
        made = build(call.target, call.T, call.eps, arch=call.arch, weight_bound=call.weight_bound)
    except InfoFlowError as refused:
        if said.verdict == "constructed":
            wrong.append(f"constructed, but build says: {refused}")
    if made is not None:
        wrong += (
            [f"{said.verdict}, but build succeeds"] if said.constructed is None else _wrong_network(call, said, made)
        )
    builder = f" by {said.constructed.builder}" if said.constructed is not None else ""
    return said.verdict + builder, wrong


def _wrong_words(said: Prediction) -> list[str]:
    """A verdict that says more than its kind."""
    width, proved = said.arch.width, None if said.proved is None else said.proved.width_at_eps
    wrong = []
    if said.verdict == "proved hard" and (said.arch.embed is None or width is None or not width[-1] < (proved or 0)):
        wrong.append(f"proved hard with width {width}, the theorem excludes those below {proved}")
    if (said.verdict == "constructed") != (said.constructed is not None):
        wrong.append(f"{said.verdict} with constructed = {said.constructed}")
    if said.constructed is not None and proved is not None and said.constructed.widths[-1] < proved:
        wrong.append(f"a network of width {said.constructed.widths} that a theorem excludes below {proved}")
    return wrong


def _wrong_network(call: Call, said: Prediction, made: Any) -> list[str]:
    assert said.constructed is not None
    report, arch, wrong = report_of(made), call.arch, []
    if not made.certificate.bound == said.constructed.bound <= call.eps:
        wrong.append(f"bound {made.certificate.bound!r}, predicted {said.constructed.bound!r}, eps {call.eps}")
    one_head = said.constructed.builder in UNIFORM
    for name, stated in (("heads", None if one_head else arch.heads), ("embed", arch.embed), ("widths", arch.width)):
        if stated is not None and not all(a <= b for a, b in zip(report[name], stated, strict=True)):
            wrong.append(f"{name} {report[name]} do not fit {stated}")
    inner = getattr(made, "network", made)
    if isinstance(inner, Transformer) and call.weight_bound is not None and largest_weight(inner) > call.weight_bound:
        wrong.append(f"a weight of {largest_weight(inner)!r}, the bound is {call.weight_bound}")
    X = np.random.default_rng(0).uniform(*call.target.domain, (8, call.T, call.target.dim))
    if call.target.condition:
        X = X[np.asarray(call.target.slack(X)) >= 0]
    if len(X):
        error = float(np.abs(made(torch.from_numpy(X)).numpy() - call.target(X)).max())
        wrong += [f"an error of {error}, certified {made.certificate.bound}"] if error > made.certificate.bound else []
    asked = (call.target, call.T) if isinstance(inner, Transformer) else ()  # the others name their own
    found = certify(made, *asked, seconds=0.0, balls=False)
    return wrong if found.holds else [*wrong, f"built, but certify says: {found.why_not[0]}"]


def sweep(draws: int, seed: int, keep: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """What came out of every draw; `keep` gets what there is from time to time."""
    counts: Counter[str] = Counter()
    disagreements: list[dict[str, Any]] = []
    start = time.perf_counter()

    def summary(done: int) -> dict[str, Any]:
        found = {"draws": done, "seed": seed, "verdicts": dict(sorted(counts.items())), "disagreements": disagreements}
        return found | {"seconds": time.perf_counter() - start}

    with tempfile.TemporaryDirectory() as folder, Progress("draws", draws) as bar:
        source = Draws(seed, Path(folder))
        for number in range(draws):
            call = source.call()
            verdict, wrong = judge(call)
            counts[verdict] += 1
            if wrong:
                disagreements.append({"draw": number, "call": str(call), "wrong": wrong})
            bar.update(number + 1)
            if keep is not None and (number + 1) % RECORDED == 0:
                keep(summary(number + 1))
    return summary(draws)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    def keep(found: dict[str, Any]) -> None:
        write_json(RESULTS, {"benchmark": "predict_vs_build", **found, "provenance": provenance(("numpy", "torch"))})

    found = sweep(options.draws, options.seed, keep)
    keep(found)
    print(f"{found['verdicts']}\n{len(found['disagreements'])} disagreements in {found['seconds']:.0f} s")
    for each in found["disagreements"][:20]:
        print(f"  {each['call']}: {'; '.join(each['wrong'])}")


if __name__ == "__main__":
    main()
