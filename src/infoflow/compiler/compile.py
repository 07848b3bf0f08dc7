"""The compiler: a target becomes a Transformer with explicit weights and a certificate.

The passes read like appendix A.1 of the InfoFlow paper: validate and root the trees (`flow.normal_form`), allot heads
and directions (`flow.layout`), spend the error (`compiler.budget`), and here write the weights, attach the certificate
and say what was built. Every row comes from the wiring; nobody counts columns.

Behind a Transformer may stand the user's own outer map (`WithOuter`): a function, applied to the values of the terms as
it is (it is part of the target, not approximated). The certificate multiplies the Transformer's error by the stated
Lipschitz constant and adds the stated error.
"""

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from infoflow.certificates import Certificate, Certified, error_claim
from infoflow.compiler.blocks import Block, constant_units, units
from infoflow.compiler.budget import Budget, weight_class
from infoflow.compiler.offer import Offer, Question
from infoflow.errors import InfoFlowError
from infoflow.flow.jobs import factors_of
from infoflow.flow.layout import Layout
from infoflow.flow.normal_form import box, names_positions
from infoflow.nn import Transformer, TransformerConfig
from infoflow.nn.transformer import AttentionLayer, FeedForward, Linear
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


def configure(layout: Layout, plan: Budget) -> TransformerConfig:
    """The shape of the network: the layout's, or the given architecture's, which is then padded with zeros."""
    arch, form = layout.arch, layout.form
    widths = tuple(max(w, 1) for w in plan.widths)
    if arch is not None and arch.width is not None:
        widths = arch.width
    augmented = layout.positions == "augmented"
    return TransformerConfig(
        dim=form.dim,
        heads=layout.heads,
        head_dims=tuple(size // h for size, h in zip(layout.sizes, layout.heads, strict=True)),
        widths=widths,
        outputs=plan.blocks[-1].outputs,
        scales=plan.betas,
        encoder="linear" if plan.encoder is None else "mlp",
        encoder_width=plan.encoder_width,
        positions=layout.positions,  # type: ignore[arg-type]
        length=form.T if layout.positions != "none" else 0,
        position_dim=max(len(form.position_features), 1) if augmented else 0,
        mask=arch.mask if arch is not None else "none",
    )


def write(layout: Layout, plan: Budget, weight_bound: float | None) -> Transformer:
    """The network in float64."""
    network = Transformer(configure(layout, plan)).double()
    with torch.no_grad():
        places = [coordinates(layout, layer) for layer in range(layout.layers)]
        _write_embedding(network, layout, plan, places[0], weight_bound)
        for layer, attention in enumerate(network.attentions):
            assert isinstance(attention, AttentionLayer)
            _write_heads(attention, layout, plan, layer, places[layer])
        for layer, ffn in enumerate(network.ffns):
            assert isinstance(ffn, FeedForward)
            write_block(ffn, plan.blocks[layer], weight_bound, places[layer], places[layer + 1])
        assert network.readout is not None
        outputs = np.arange(plan.blocks[-1].outputs)
        write_block(network.readout, plan.blocks[-1], weight_bound, places[-1], outputs)
    return network.requires_grad_(False)


def coordinates(layout: Layout, layer: int) -> np.ndarray:
    """Direction j of the layout lives in coordinate coordinates[j]; augmented positions are the last coordinates."""
    state = layout.states[layer]
    result = np.arange(state.size)
    if layer == 0 and layout.positions == "augmented" and layout.form.position_features:
        count, features = len(layout.form.position_features), len(state.basis)
        codes = np.arange(features - count, features)
        rest = np.setdiff1d(result, codes)
        result[rest] = np.arange(len(rest))
        result[codes] = np.arange(layout.sizes[0] - count, layout.sizes[0])
    return result


def _write_embedding(
    network: Transformer, layout: Layout, plan: Budget, place: np.ndarray, weight_bound: float | None
) -> None:
    form, state, wiring = layout.form, layout.states[0], plan.wiring
    rows = wiring.scales[0][:, None] * state.basis  # stored feature = rows @ features
    assert network.encoder is not None
    assert network.cls_token is not None
    if plan.encoder is not None:
        write_block(network.encoder, plan.encoder, weight_bound, np.arange(form.dim), place)
    else:
        (linear,) = linear_maps(network.encoder)
        for i, feature in enumerate(form.features):
            if not names_positions(feature):
                axis = feature.index(1)
                for j in np.flatnonzero(rows[:, i]):
                    linear.weight[place[j], axis] = rows[j, i] / form.half[axis]
                    linear.bias[place[j]] -= rows[j, i] * form.centre[axis] / form.half[axis]
        if state.one is not None:
            linear.bias[place[state.one]] = wiring.token_one[0]
    if network.position is not None:
        offset = layout.sizes[0] - network.config.position_dim if network.config.position_dim else 0
        for i in form.position_features:
            code = form.position_code(i)
            for j in np.flatnonzero(rows[:, i]):
                network.position[:, place[j] - offset] += torch.from_numpy(rows[j, i] * code)
    network.cls_token[torch.from_numpy(place)] = torch.from_numpy(wiring.cls)


def _write_heads(attention: AttentionLayer, layout: Layout, plan: Budget, layer: int, place: np.ndarray) -> None:
    """Head i is rows i*n..(i+1)*n of the joined output; a shared head holds its message first, its read behind it."""
    n = layout.sizes[layer] // layout.heads[layer]
    used_keys = [0] * layout.heads[layer]
    used_values = [0] * layout.heads[layer]
    columns = torch.from_numpy(place)
    assert attention.value is not None
    for head in plan.wiring.heads[layer]:
        h = head.job.head
        for query, key in zip(head.query, head.key, strict=True):
            attention.query[h, used_keys[h], columns] = torch.from_numpy(query)
            attention.key[h, used_keys[h], columns] = torch.from_numpy(key)
            used_keys[h] += 1
        for value, target in zip(head.value, head.writes, strict=True):
            attention.value[h, used_values[h], columns] = torch.from_numpy(value)
            attention.output[place[target], h * n + used_values[h]] = 1.0
            used_values[h] += 1


def linear_maps(ffn: nn.Module) -> tuple[Linear, ...]:
    """The affine maps of a feed-forward block, in order."""
    assert isinstance(ffn, FeedForward)
    return tuple(layer for layer in ffn.maps if isinstance(layer, Linear))


def write_block(
    ffn: FeedForward, block: Block, weight_bound: float | None, inputs: np.ndarray, outputs: np.ndarray
) -> None:
    """Units of every piece one after the other, then the units of constants above the bound."""
    first, second = linear_maps(ffn)
    columns = torch.from_numpy(np.asarray(inputs))
    used = 0
    for piece in block.pieces:
        hidden, biases, coefficients = units(piece)
        span = slice(used, used + len(hidden))
        first.weight[span, columns] = torch.from_numpy(hidden)
        first.bias[span] = torch.from_numpy(biases)
        second.weight[outputs[piece.output], span] = torch.from_numpy(coefficients)
        used += len(hidden)
    for output, value in block.constants.items():
        count = constant_units(value, weight_bound)
        bias = value if count == 0 else math.copysign(1.0, value)
        second.bias[outputs[output]] = bias
        if count:
            first.bias[used : used + count] = 1.0
            second.weight[outputs[output], used : used + count] = (value - bias) / (count * math.tanh(1.0))
            used += count


def nonzero(network: Transformer) -> int:
    """Parameters that are not 0."""
    return sum(int(torch.count_nonzero(p)) for p in network.parameters())


def largest_weight(network: Transformer) -> float:
    """The largest entry of everything Theorem 4 bounds by 1: attention matrices, feed-forward blocks, read-out."""
    bounded: list[Tensor] = [
        p for name, p in network.named_parameters() if name.startswith(("attentions", "ffns", "readout"))
    ]
    return max(float(p.abs().max()) for p in bounded if p.numel())


class WithOuter(nn.Module):
    """X (B, T, d) -> outer(values of the terms)."""

    def __init__(self, network: Transformer, target: Target) -> None:
        super().__init__()
        assert isinstance(target.outer, OuterNetwork)
        self.network, self.target, self.outer = network, target, target.outer

    @property
    def certificate(self) -> Certificate:
        """The Transformer's, which already counts the outer map."""
        certificate = self.network.certificate
        assert certificate is not None
        return certificate

    @property
    def header(self) -> dict[str, Any]:
        """The Transformer's."""
        return self.network.header

    @property
    def config(self) -> Any:
        """The Transformer's."""
        return self.network.config

    def values(self, X: Tensor) -> Tensor:
        """What the Transformer hands to the outer map, (B, values)."""
        values: Tensor = self.network(X)
        return values[..., None] if self.network.config.outputs == 1 else values

    def forward(self, X: Tensor) -> Tensor:
        """The user's function of the values the Transformer computes."""
        values = self.values(X)
        result: Tensor = self.outer(values)
        return result[..., 0] if self.outer.outputs == 1 and result.ndim == values.ndim else result

    def save(self, path: str | Path) -> Path:
        """Refused: a function is not tensors."""
        raise InfoFlowError(
            "expected a network that is tensors alone, this one ends in your own function; save .network and apply "
            "the function after loading."
        )


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
