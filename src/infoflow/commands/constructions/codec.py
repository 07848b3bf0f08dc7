"""`infoflow build codec --m 2 --n 1 --eps 0.1 --activation tanh`: the codec of Theorem 6."""

import math
from pathlib import Path
from typing import Any

from infoflow.construct.catalogue import CONSTRUCTIONS


def run(options: dict[str, Any], out: Path, seed: int) -> dict[str, Any]:
    """Make it, save it, attack it; where theory has two inputs that share a latent, find them."""
    from infoflow.construct import makers

    given = CONSTRUCTIONS["codec"].read(options, command=True)
    made = makers.codec(given, seed)
    m, n, eps, activation, p = (given[name] for name in ("m", "n", "eps", "activation", "p"))
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
    """The report in words."""
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
