"""Plain-text tables for people: a prediction, a plan, exponents against the length."""

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infoflow.verdicts.predict import Prediction


def columns(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Left-aligned columns, two spaces apart."""
    cells = [[str(item) for item in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(item.ljust(width) for item, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)


def prediction_table(prediction: "Prediction") -> str:
    p = prediction
    weights = "unbounded" if p.weight_bound is None else f"at most {p.weight_bound:g}"
    lines = [
        f"{p.target}  {p.arch}  T={p.T}  eps={p.eps:g}  weights {weights}",
        "",
        f"verdict      {p.verdict}",
    ]
    if p.constructed is not None:
        c = p.constructed
        sizes = f"embed {_list(c.embed)}, widths {_list(c.widths)}"
        lines.append(f"constructed  by the {c.builder}: {sizes}, certified error {c.bound:.3g}")
    if p.proved is not None:
        width = (
            "no width excluded at this eps"
            if p.proved.width_at_eps is None
            else f"every read-out width below {p.proved.width_at_eps:.3g} is excluded"
        )
        lines.append(f"proved       {width}, exponent {p.proved.exponent}")
    if p.arch.embed is None:
        why = "construction" if p.constructed is not None else "cheapest flow"
        lines.append(f"embed        left open; {_list(p.embed)} is the least that serves the {why}")
    k = p.counting
    seen = " (estimated)" if k.estimated else ""
    if k.required[k.used] is None:
        counted = f"no {k.used} count for this target"
    else:
        exponent = "infeasible" if k.exponent is None else f"exponent {k.exponent}"
        counted = f"dimension {k.dimension}{seen}, order {k.order}{seen}, set of {k.smallest_set}, {exponent}"
    lines.append(f"counting     {counted}  ({k.kind})")
    modes = "; ".join(f"layer {l}: {m['tokens']}/{m['cls']}" for l, m in enumerate(p.flow.modes, 1))
    lines.append(f"flow         {modes} (tokens/CLS), exponent {p.flow.exponent}  ({p.flow.kind})")
    if p.temperature is not None:
        lines += _temperature_lines(p.temperature)
    lines.append("")
    says = p.proved is not None and p.proved.width_at_eps is not None
    notes = [f"the bound assumes: {'; '.join(p.proved.assumes)}"] if says and p.proved is not None else []
    for reason in (*p.reasons, *notes):
        lines += wrap(reason, 110, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)


def _temperature_lines(found: Any) -> list[str]:
    parts = [
        f"NMSE {level:g} at beta {'-' if beta is None else f'{beta:.3g}'} ({'-' if std is None else f'{std:.3g}'} std)"
        for level, beta, std in zip(found.nmse_at, found.beta, found.logit_std, strict=True)
    ]
    return [f"temperature  {', '.join(parts)}"]


def _list(values: Sequence[int]) -> str:
    return ",".join(map(str, values))
