"""What `infoflow build` says about a network: shapes, beta, parameters, bound."""

from typing import Any

from infoflow.construct.writer import nonzero


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
        f"(asked {report['eps']:g}) for {report['inputs']}",
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
