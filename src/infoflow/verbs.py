"""The verbs that serve several rooms: each looks at what it is given and calls the room that answers.

This is the last module before the commands, so it may know every room; it imports one when it is needed.
"""

import sys
from typing import TYPE_CHECKING, Any

from infoflow import arguments
from infoflow.architecture import Architecture
from infoflow.certificates import Certificate, Certified
from infoflow.errors import InfoFlowError, unknown

if TYPE_CHECKING:
    from torch import nn

    from infoflow.flow.sets import Ties
    from infoflow.flow.trace import Flow
    from infoflow.probes.halving import LongFlow
    from infoflow.probes.measured import MeasuredFlow, MeasuredFlows
    from infoflow.targets.named import TargetLike


def build(
    what: "TargetLike",
    T: int | None = None,
    eps: float | None = None,
    arch: Architecture | str | None = None,
    domain: Any = None,
    weight_bound: float | None = 1,
    rule: str = "chebyshev",
    **options: Any,
) -> Certified:
    """Explicit weights with a certificate, for a target or by the name of a construction.

        iflow.build("pairwise_max:D=4,d=4", T=64, eps=0.01)
        iflow.build("truncated_linear", a=-1, b=2)        # or "truncated_linear:a=-1,b=2"

    A target's network is within `eps` of it on the box, in float64, or Refused with every reason: every builder is
    asked in turn and the first that can serve writes. `arch` is the architecture to fit into, `domain` a box (low,
    high) in place of the target's own; `weight_bound` 1 keeps everything Theorem 4 bounds by 1 at most 1 (beta is a
    field, not a weight), None lifts it; `rule` is "chebyshev", "plain" or one other builder alone. The constructions
    and their options are listed by `infoflow build --help`; `seed` is an option of each.
    """
    from infoflow.construct.catalogue import CONSTRUCTIONS

    name, _, keys = what.strip().partition(":") if isinstance(what, str) else ("", "", "")
    if name in CONSTRUCTIONS:
        given = {"T": T, "eps": eps, **options}
        return _construction(name, keys, {key: value for key, value in given.items() if value is not None})
    from infoflow.construct.builders import build as build_target

    for option in options:
        raise unknown("option", option, ["T", "eps", "arch", "domain", "weight_bound", "rule"])
    if T is None or eps is None:
        raise InfoFlowError("expected a length T and an error eps to build a target, for example T=64, eps=0.01.")
    return build_target(what, T, eps, arch, domain, weight_bound, rule)


def _construction(name: str, keys: str, given: dict[str, Any]) -> Certified:
    from infoflow.construct.catalogue import make

    spelled = arguments.pairs(filter(None, keys.split(",")), f"separated by commas after {name}:")
    seed = given.pop("seed", 0)
    return make(name, spelled | given, seed)


def certify(
    network: Any,
    target: "TargetLike | None" = None,
    T: int | None = None,
    seconds: float = 10.0,
    seed: int = 0,
    balls: bool | None = None,
    eps: float | None = None,
    vocabulary: Any = None,
) -> Certificate:
    """How wrong can this network be? The proved bound, the largest error an attack found, and the verdict.

    A built network is read again and held against its construction (`compiler/`); of a trained one, or a PyTorch module
    that an `iflow.OneLayer` describes, the error over all sequences of the box is bounded within `seconds` (`proofs/`).
    `target`, `T` and `eps` (what is asked) default to what the file names. `balls` encloses the rules of a built
    network in ball arithmetic; None does so where python-flint is installed.

    `vocabulary` of a trained network: its token vectors (V, d), so that the claim is about all V^T sequences of them;
    of a network over token numbers, V probabilities of the tokens, so that its accuracy is bounded under that law.
    """
    from infoflow.compiler.certification import certify as certify_built
    from infoflow.nn import Transformer
    from infoflow.proofs.adapter import OneLayer

    trained = isinstance(network, Transformer) and not {"certificate", "weight_bound"} & network.header.keys()
    if trained or isinstance(network, OneLayer):
        from infoflow.proofs.trained import certify_trained

        eps = None if eps is None else arguments.eps(eps)
        seconds, seed = arguments.attack_seconds(seconds), arguments.seed(seed)
        return certify_trained(network, target, T, seconds, seed, eps, vocabulary)
    if vocabulary is not None:
        raise InfoFlowError("expected a trained network with a vocabulary, got a built one; leave the vocabulary out.")
    return certify_built(network, target, T, seconds, seed, balls, eps)


def trace(
    what: "TargetLike | nn.Module",
    arch: Any,
    X: Any = None,
    ties: "Ties" = "first",
    cls_skip: bool = True,
    **options: Any,
) -> "Flow | MeasuredFlow | MeasuredFlows | LongFlow":
    """Where information goes, layer by layer: as the framework says of a target, or as measured in a network.

        iflow.trace(F, arch, X)       the flow of the tokens X (T, d) through the heads the target's layout gives
        iflow.trace(network, X)       the sets of a built, trained or pretrained network, by intervention

    `ties` says who wins among equals; without `cls_skip` the CLS attends in every layer, also where it reads nothing.
    A network's X is one document (T, d) or several (B, T, d), or a mapping with `input_ids`; its options are those of
    `probes.infosets.Settings` (draws, seed, threshold, ...) and `law`, further documents. Long ones: by halving groups.
    """
    torch = sys.modules.get("torch")  # whoever has a network has loaded it; a target's flow needs numpy alone
    if torch is not None and isinstance(what, torch.nn.Module):
        from infoflow.probes.infosets import measured_sets

        if X is not None:
            raise InfoFlowError("expected trace(network, X) with one input, got an architecture as well; leave it out.")
        return measured_sets(what, arch, **options)
    from infoflow.flow.trace import trace as trace_target

    for option in options:
        raise unknown("option", option, ["ties", "cls_skip"])
    if X is None:
        raise InfoFlowError("expected trace(target, architecture, X) or trace(network, X), got no input X.")
    return trace_target(what, arch, X, ties, cls_skip)
