"""`infoflow build codec --m 2 --n 1 --eps 0.1 --activation tanh`: the codec of Theorem 6."""

import math
from pathlib import Path
from typing import Any

from infoflow.commands.constructions.options import Options
from infoflow.errors import InfoFlowError


def run(options: dict[str, str], out: Path, seed: int) -> dict[str, Any]:
    from infoflow.construct.codec import codec

    left = Options(options)
    m, n, eps = left.take("m", int, 2), left.take("n", int, 1), left.take("eps", float, 0.1)
    activation, p = left.take("activation", str, "heaviside"), left.take("p", float, 2.0)
    slope = left.take("slope", float, None)
    left.done()
    made = codec(m, n, eps, activation, p, slope)
    if not made.certificate.holds:
        raise InfoFlowError(
            f"expected a slope that keeps the error within eps={eps:g}, the bound is {made.certificate.bound:.4g}; "
            "raise --slope or leave it out."
        )
    path = made.save(out / f"codec_m{m}_n{n}_{activation}.safetensors")
    report: dict[str, Any] = {
        "construction": "codec",
        "path": path,
        "m": m,
        "n": n,
        "eps": eps,
        "activation": activation,
        "bits": made.bits,
        "latent_bits": made.latent_bits,
        "encoder_units": made.encoder.units,
        "decoder_units": made.decoder.units,
        "parameters": made.parameters,
        "bound": made.certificate.bound,
        "norm": "sup" if activation == "heaviside" else f"L_{p:g}",
        "attacked": made.attack(seed),
    }
    if math.isfinite(made.encoder.slope):
        report |= {"encoder_slope": made.encoder.slope, "decoder_slope": made.decoder.slope}
        if m > n and n in (1, 2):
            report["twins"] = _twins(made)
    return report


def _twins(made: Any) -> dict[str, Any]:
    from infoflow.refutations.twins import codec_twins

    found = codec_twins(made.encode, made.m, made.n)
    errors = found.decoder_errors(made.decode, made.encode(found.V[None])[0])
    return {"V": found.V, "W": found.W, "latent_difference": found.latent_difference, "sup_errors": errors}


def text(report: dict[str, Any]) -> str:
    lines = [
        f"codec {report['m']} -> {report['n']} -> {report['m']}, {report['activation']} units, eps {report['eps']:g}",
        f"  {report['bits']} bits a coordinate, {report['latent_bits']} bits a latent",
        f"  units {report['encoder_units']} + {report['decoder_units']}, parameters {report['parameters']}",
        f"  {report['norm']} error at most {report['bound']:.4g}, measured {report['attacked']:.4g}",
    ]
    if "twins" in report:
        twins = report["twins"]
        errors = " and ".join(f"{e:.3g}" for e in twins["sup_errors"])
        lines.append(
            f"  sup norm: V and 1-V share a latent (difference {twins['latent_difference']:.1g}), errors {errors}"
        )
    return "\n".join([*lines, f"  wrote {report['path']}"])
