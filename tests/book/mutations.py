"""One small change to every construction the book checks: a sign, a constant, a weight. Each must be noticed.

A mutation takes the construction a check uses and returns one that builds something slightly wrong; the check gets it
through its own parameter.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from infoflow.book.formulas import printed_47
from infoflow.construct.softmax_attention.bumps import ReluBumps
from infoflow.construct.softmax_attention.multi_head import MultiHeadTruncatedLinear
from infoflow.targets.trees import ComparisonTree

Construction = Callable[..., Any]
Mutation = Callable[[Construction], Construction]


def then(change: Callable[[Any], Any]) -> Mutation:
    """Build, then change what was built."""

    def mutation(build: Construction) -> Construction:
        return lambda *arguments, **options: change(build(*arguments, **options))

    return mutation


def fields(**changes: Callable[[Any], Any]) -> Mutation:
    """Replace fields of the dataclass that was built, each by a function of its value."""
    return then(lambda made: replace(made, **{name: f(getattr(made, name)) for name, f in changes.items()}))


def weaker_readout(network: Any) -> Any:
    """Half of the last map's weights."""
    with torch.no_grad():
        network.readout.maps[-1].weight.mul_(0.5)
    return network


def memory(made: Any) -> Any:
    weaker_readout(made.memory.network)
    return made


def equivariant(made: Any) -> Any:
    weaker_readout(made.network)
    return made


def table(network: Any) -> Any:
    network.get_buffer("table0").sub_(0.5)
    return network


def halved_table(net: Any) -> Any:
    net.__dict__["table"] = net.table / 2  # the cached values of f that layer 2 reads
    return net


def other_sign(tree: ComparisonTree) -> ComparisonTree:
    return replace(tree, functions=tuple(lambda tokens, f=f: -f(tokens) for f in tree.functions))


def printed_sentinels(net: MultiHeadTruncatedLinear) -> MultiHeadTruncatedLinear:
    """All sentinels 0, as printed."""

    class Printed(MultiHeadTruncatedLinear):
        def head(self, h: int, token: int | None = None) -> Any:
            made = super().head(h, token)
            W_V = made.W_V.clone()
            W_V[0, self.w.shape[-1]] = W_V[0, -1] = 0
            return replace(made, W_V=W_V)

    return Printed(**{name: getattr(net, name) for name in net.__dataclass_fields__})


def lower_readout(net: ReluBumps) -> ReluBumps:
    class Lower(ReluBumps):
        def layers(self) -> Any:
            *hidden, (weight, bias) = super().layers()
            return [*hidden, (-weight, bias)]

    return Lower(**{name: getattr(net, name) for name in net.__dataclass_fields__})


def orthogonal(build: Construction) -> Construction:
    """A direction that does not see the difference of the first two tokens."""

    def mutated(tokens: np.ndarray, *arguments: Any, **options: Any) -> Any:
        found = build(tokens, *arguments, **options)
        step = tokens[0] - tokens[1]
        vector = found.vector - step * (found.vector @ step) / (step @ step)
        return replace(found, vector=vector / max(float(np.linalg.norm(vector)), 1e-300))

    return mutated


negative_beta = fields(beta=lambda beta: -beta)
one_wrong_column = fields(second=lambda tokens: tokens * np.r_[1.0, 1.0, 1.01, np.ones(len(tokens) - 3)][:, None])


def one_bias(readout: tuple[Any, ...]) -> tuple[Any, ...]:
    (weight, bias), *rest = reversed(readout)
    return (*reversed(rest), (weight, bias + 0.5))


# id -> (parameter of the check, what is done to the construction behind it)
MUTATIONS: dict[str, tuple[tuple[str, Mutation], ...]] = {
    "infoflow.theorem1": (("build", then(weaker_readout)), ("width", then(lambda log: log + 1))),
    "infoflow.theorem2": (("build", then(lambda log: log + 1e-3)),),
    "infoflow.theorem3": (("build", fields(decoder=lambda steps: replace(steps, jumps=-steps.jumps))),),
    "infoflow.theorem3.lower": (("build", fields(V=lambda V: np.clip(V + 1e-2, 0, 1))),),
    "infoflow.lemma1": (("build", then(lambda unit: unit._replace(D=unit.D - 0.3))),),
    "infoflow.costlaw": (("build", then(lambda exponent: exponent + 1)),),
    "infoflow.equation5": (("build", then(lambda count: count + 1)),),
    "infoflow.section6": (("build", lambda build: lambda s, T: s * (T - 1)),),
    "infoflow.proposition1": (("build", then(weaker_readout)),),
    "infoflow.equation47": (("build", lambda build: printed_47),),
    "infoflow.proposition2": (("build", then(weaker_readout)),),
    "infoflow.triangle": (("build", then(table)),),
    "infoflow.appendixD.retrieval": (("build", then(lambda trees: tuple(map(other_sign, trees)))),),
    "infoflow.appendixD.triples": (("build", then(lambda trees: tuple(map(other_sign, trees)))),),
    "infoflow.appendixE": (("build", lambda build: lambda X, layers: build(X * [1, -1], layers[::-1])),),
    "heads.density": (("build", fields(sets=lambda sets: (tuple(range(max(map(max, sets)) + 1)),))),),
    "heads.corollary1": (("build", then(lambda k: k * 0.9)), ("cost", fields(head_dim=lambda n: n + 1))),
    "heads.transition": (("build", then(weaker_readout)),),
    "heads.transition.lower": (("build", fields(width_at_eps=lambda width: width * 1.1)),),
    "heads.single": (("build", fields(readout=one_bias)),),
    "softmax.F.1": (("build", then(lambda beta: 0.9 * beta)), ("pair", then(lambda beta: 0.9 * beta))),
    "softmax.3.4": (("build", negative_beta),),
    "softmax.G.6": (("build", negative_beta),),
    "softmax.3.9": (("build", then(printed_sentinels)),),
    "softmax.3.10": (("build", then(printed_sentinels)),),
    "softmax.G.14": (("build", fields(one=lambda one: replace(one, beta=-one.beta))),),
    "softmax.3.11": (("build", then(lower_readout)),),
    "softmax.3.12": (("build", then(halved_table)),),
    "softmax.3.13": (("build", then(halved_table)),),
    "softmax.3.14": (("build", then(halved_table)),),
    "softmax.3.15": (("build", then(halved_table)),),
    "softmax.E.1": (("build", fields(paper_heads=lambda paper: not paper)),),
    "softmax.F.2": (("build", fields(network=lambda network: replace(network, eta=-network.eta))),),
    "softmax.D.1": (("build", fields(bias_coefficient=lambda coefficient: coefficient / 2)),),
    "softmax.D.4": (("build", fields(eta=lambda eta: 1.01 * eta)),),
    "softmax.H.1": (("build", negative_beta),),
    "softmax.H.2": (("build", negative_beta),),
    "softmax.H.3": (("build", negative_beta),),
    "softmax.I.1": (("build", fields(A=lambda A: 1.001 * A)),),
    "softmax.I.2": (("build", fields(signs=lambda signs: -signs)),),
    "rank1.theorem1": (("build", one_wrong_column),),
    "rank1.lemma1": (("build", then(lambda bound: 1e3 * bound)),),
    "rank1.lemma2": (("build", orthogonal),),
    "rank1.lemma3": (("build", orthogonal),),
    "rank1.lemma4": (("build", then(lambda slope: 1.01 * slope)),),
    "rank1.lemma5": (("build", then(lambda bend: -bend)),),
    "rank1.lemma6": (("build", fields(right=lambda right: 1.5 * right)),),
    "rank1.lemma7": (("build", then(lambda bound: 1.2 * bound)),),
    "rank1.theorem2": (("build", fields(head=lambda head: replace(head, output=0 * head.output))),),
    "rank1.corollary1": (("build", then(memory)),),
    "rank1.corollary2": (("build", then(memory)),),
    "rank1.proposition1": (("build", then(equivariant)), ("positional", then(equivariant))),
    "rank1.appendixC": (("build", then(lambda bound: 1.2 * bound)),),
}
