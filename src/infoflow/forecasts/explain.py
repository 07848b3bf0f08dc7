"""Why a forecast is what it is, and what a change would give: a head, a layer, twice the width, twice the steps."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from infoflow.architecture import Architecture
from infoflow.forecasts.forecast import Forecast, checked, from_floors
from infoflow.forecasts.quantities import find_floors
from infoflow.report.html import Shown
from infoflow.targets import Target
from infoflow.targets.named import TargetLike, target_of
from infoflow.train.recipe import Recipe

NOT_FOLLOWED = 0.02  # share of a term's variance that reads may leave before the term counts as not followed


@dataclass(frozen=True)
class Change:
    """One change of the question and the forecast it has."""

    what: str
    arch: str
    steps: int
    nmse: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """A forecast with the terms its reads do not follow and the forecasts of its neighbours."""

    forecast: Forecast
    terms: tuple[str, ...]  # names, one for each value of the target's terms
    changes: tuple[Change, ...]

    @property
    def not_followed(self) -> tuple[str, ...]:
        shares = zip(self.terms, self.forecast.missed, strict=True)
        return tuple(
            f"{name} ({share:.0%} of its variance is not told)" for name, share in shares if share > NOT_FOLLOWED
        )

    def to_json(self) -> dict[str, Any]:
        return self.forecast.to_json() | {
            "not_followed": list(self.not_followed),
            "changes": [asdict(change) for change in self.changes],
        }

    def __str__(self) -> str:
        lines = [str(self.forecast), ""]
        if self.not_followed:
            lines += [f"not followed  {word}" for word in self.not_followed]
        else:
            lines.append("every term is followed by the best reads found: more steps sharpen them")
        lines += [_line(change, self.forecast.nmse) for change in self.changes]
        best = min(self.changes, key=lambda change: change.nmse)
        if best.nmse < self.forecast.nmse / 2:
            lines.append(f"what helps most: {best.what}")
        else:
            lines.append("none of these changes is forecast to halve the error")
        return "\n".join(lines)


def explain(target: TargetLike, arch: Architecture | str, T: int, recipe: Recipe | None = None) -> Explanation:
    """The forecast from theory, which terms its reads do not follow, and what each change would give."""
    target, recipe = target_of(target), recipe or Recipe()
    arch = checked(target, arch, T)
    mlp = recipe.encoder == "mlp"
    found = find_floors(target, arch, T, mlp)
    longer = _twice(recipe)
    wider = arch.with_(width=tuple(2 * w for w in arch.widths))
    here = from_floors(found, target, arch, T, recipe)
    changes = [_change(what, from_floors(find_floors(target, other, T, mlp), target, other, T, recipe))
               for what, other in _neighbours(arch)]  # fmt: skip
    changes.append(_change("twice the width", from_floors(found, target, wider, T, recipe)))
    changes.append(_change("twice the steps", from_floors(found, target, arch, T, longer)))
    return Explanation(here, _term_names(target), tuple(changes))


def _neighbours(arch: Architecture) -> list[tuple[str, Architecture]]:
    """One more head in each layer (head dimensions stay), and one more layer like the last."""
    found = []
    for layer, size in enumerate(arch.head_dims):
        heads = tuple(h + (l == layer) for l, h in enumerate(arch.heads))
        embed = tuple(e + size * (l == layer) for l, e in enumerate(arch.embeds))
        where = f" in layer {layer + 1}" if arch.layers > 1 else ""
        found.append((f"one more head{where}", arch.with_(heads=heads, embed=embed)))
    deeper = [(*values, values[-1]) for values in (arch.heads, arch.embeds, arch.widths)]
    found.append(("one more layer", arch.with_(heads=deeper[0], embed=deeper[1], width=deeper[2])))
    return found


def _twice(recipe: Recipe) -> Recipe:
    return replace(recipe, epochs=None, steps=2 * recipe.total_steps) if recipe.epochs is None else replace(
        recipe, epochs=2 * recipe.epochs)  # fmt: skip


def _change(what: str, made: Forecast) -> Change:
    return Change(what, str(made.arch), made.steps, made.nmse, made.low, made.high)


def _line(change: Change, now: float) -> str:
    ratio = now / change.nmse
    word = f"{ratio:.2g} times less" if ratio > 1.2 else ("no better" if ratio > 1 / 1.2 else "worse")
    return f"{change.what:<28}{change.nmse:.2g} ({word}), between {change.low:.2g} and {change.high:.2g}"


def _term_names(target: Target) -> tuple[str, ...]:
    names = []
    for number, term in enumerate(target.terms, 1):
        name = f"term {number}" + (f", {term.name}" if term.name else "")
        names += [name] if term.values == 1 else [f"{name}, coordinate {i + 1}" for i in range(term.values)]
    return tuple(names)
