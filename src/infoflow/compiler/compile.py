"""The compiler: a target becomes a Transformer with explicit weights and a certificate.

The passes read like appendix A.1 of the InfoFlow paper: validate and root the trees (`flow.normal_form`), allot heads
and directions (`flow.layout`), spend the error (`compiler.budget`), write the weights (`compiler.writer`), and here
attach the certificate and say what was built.
"""

from typing import Any, cast

from infoflow.certificates import Certificate, Certified, error_claim
from infoflow.compiler.budget import Budget, weight_class
from infoflow.compiler.offer import Offer, Question
from infoflow.compiler.outer import WithOuter
from infoflow.compiler.writer import nonzero, write
from infoflow.flow.jobs import factors_of
from infoflow.flow.layout import Layout
from infoflow.flow.normal_form import box
from infoflow.targets.target import OuterNetwork, Target

ARITHMETIC = "float64 with rounding allowance"
ASSUMPTIONS = (
    "IEEE float64, round to nearest, exp and tanh within 4 units in the last place",
    "sums in any order",
)
DRAWN = 2**20  # numbers drawn at most to measure a share


def compiled(offer: Offer, asked: Question) -> Certified:
    """The network the compiler offered, written and described; the user's outer map comes behind it."""
    layout, plan = offer.plan
    network = write(layout, plan, weight_class(asked.weight_bound))
    network.header = header(layout, plan, asked)
    if isinstance(asked.target.outer, OuterNetwork):
        return WithOuter(network, asked.target)
    return cast(Certified, network)  # a trained Transformer has no certificate, one with this header has


def header(layout: Layout, plan: Budget, asked: Question) -> dict[str, Any]:
    """What the saved file says beside the tensors: plain JSON values."""
    target, T, eps = asked.target, asked.T, float(asked.eps)
    low, high = box(target.domain if asked.domain is None else asked.domain, target.dim)
    claim = error_claim(target.spelling, eps, T, low.tolist(), high.tolist(), condition=target.condition)
    certificate = Certificate(
        claim,
        plan.bound,
        ARITHMETIC,
        ASSUMPTIONS,
        promises_of(target),
        parts=plan.parts,
        measured=counted_share(target, T),
    )
    return {
        "target": target.spelling,
        "T": T,
        "eps": eps,
        "domain": [low.tolist(), high.tolist()],
        "weight_bound": weight_class(asked.weight_bound),
        "rule": asked.rule,
        "slot_gain": plan.wiring.gain,
        "directions": [list(names) for names in layout.directions],
        "factors": factors_of(layout.form),
        "jobs": [[f"head {job.head + 1}: {job.name}" for job in jobs] for jobs in layout.jobs],
        "certificate": certificate.to_json(),
    }


def promises_of(target: Target) -> tuple[str, ...]:
    """What the author of a target states and nobody proves."""
    outer = target.outer
    if not isinstance(outer, OuterNetwork):
        return ()
    error = f" and errs by at most {outer.error:g}" if outer.error else ""
    return (f"the outer map has Lipschitz constant at most {outer.lipschitz:g}{error}, as its author states",)


def counted_share(target: Target, T: int, draws: int = 4096) -> dict[str, float]:
    """The share of inputs drawn from the target's own sampler that its certificates speak of, by name; measured. Empty
    where they speak of all, and where one input is larger than what is drawn for a measurement."""
    rows = min(draws, DRAWN // (T * target.dim))
    if not target.condition or not rows:
        return {}
    return {"share of sampled inputs that count": float((target.slack(target.sample(rows, T, seed=0)) >= 0).mean())}


def report_of(network: Any) -> dict[str, Any]:
    """heads, embed, widths, beta, parameters, nonzero, bound and the parts of the bound."""
    own = getattr(network, "report", None)
    if own is not None:
        result: dict[str, Any] = own()
        return result
    config, certificate = network.config, network.certificate
    return {
        "eps": network.header["eps"],
        "domain": network.header["domain"],
        "inputs": certificate.claim.inputs,
        "promises": list(certificate.promises),
        "weight_bound": network.header["weight_bound"],
        "rule": network.header["rule"],
        "heads": list(config.heads),
        "embed": list(config.embed),
        "head_dims": list(config.head_dims),
        "widths": list(config.widths),
        "encoder_width": config.encoder_width,
        "beta": list(config.betas),
        "parameters": sum(p.numel() for p in network.parameters()),
        "nonzero": nonzero(network),
        "bound": certificate.bound,
        "parts": certificate.parts,
        "arithmetic": certificate.arithmetic,
        "directions": network.header["directions"],
    }


def report_text(report: dict[str, Any]) -> str:
    """The report for a person, a line a fact."""

    def join(values: Any) -> str:
        return ",".join(f"{v:g}" for v in values)

    lines = [
        f"{report['target'] or 'target'}, T={report['T']}: |network - target| <= {report['bound']:.4g} "
        f"(asked {report['eps']:g}) for {report['inputs']}"
        + (f", if {' and '.join(report['promises'])}" if report["promises"] else ""),
        f"  heads={join(report['heads'])} embed={join(report['embed'])} width={join(report['widths'])}"
        + (f" encoder={report['encoder_width']}" if report["encoder_width"] else ""),
        f"  beta={join(report['beta'])}",
        f"  {report['parameters']:,} parameters, {report['nonzero']:,} not 0, rule {report['rule']}, "
        f"weights {'at most 1' if report['weight_bound'] else 'unbounded'}",
        "  bound = " + " + ".join(f"{value:.3g} {name}" for name, value in report["parts"].items() if value),
        f"  {report['arithmetic']}; built in {report['seconds']:.2f} s",
        f"  {report['path']}",
    ]
    return "\n".join(lines)
