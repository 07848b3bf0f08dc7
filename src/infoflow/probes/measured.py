"""Measured information sets: what `iflow.trace(model, X)` returns.

Three sets for every layer and position, each of the sources whose effect reaches the threshold (effects.py):

    content     on the output through that state alone, attention frozen: whose values are in it, and are used
    selection   the same with attention free, less the content: who could have won
    held        on the state itself, attention frozen: whose values are in it, used or not

Behind the last layer there is the output alone (position T + 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from infoflow.errors import InfoFlowError, unknown
from infoflow.flow.trace import braces
from infoflow.probes.bracket import Bracket
from infoflow.probes.effects import Effects
from infoflow.probes.intervals import ratio_interval
from infoflow.report.html import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SetKind = Literal["content", "selection", "held"]
KINDS: tuple[SetKind, ...] = ("content", "selection", "held")
SWEEP = np.geomspace(1e-3, 1e-1, 21)  # thresholds where no certificate gives one
MIDDLE = 1e-2  # of the sweep: the sets that are printed
SURE = 2.0  # standard errors between an effect and the threshold


@dataclass(frozen=True)
class Threshold:
    """From which effect on a source is a member, and where the number comes from."""

    value: float
    origin: str

    @property
    def swept(self) -> bool:
        return self.origin == "swept"

    def __str__(self) -> str:
        return f"{self.value:.2g} of the variance ({self.origin})"


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredFlow(Shown):
    """The information sets of one document. Positions and layers are 1-based; T + 1 is the CLS or the output."""

    name: str
    T: int
    layers: int
    draws: int
    threshold: Threshold
    content: Effects
    free: Effects | None
    bracket: Bracket | None
    notes: tuple[str, ...] = field(default=())

    def effect(self, layer: int, kind: SetKind = "content") -> tuple[np.ndarray, np.ndarray]:
        """(rows, T) effects behind the layer and their standard errors; behind the last layer one row, the output."""
        if kind not in KINDS:
            raise unknown("kind of set", kind, list(KINDS))
        if not 0 <= layer <= self.layers:
            raise InfoFlowError(f"expected a layer between 0 and {self.layers}, got {layer}.")
        found = self.free if kind == "selection" else self.content
        if found is None:
            raise InfoFlowError("expected a flow with selection sets, this one was measured without; pass selection.")
        if layer == self.layers:
            return found.output[None], found.output_error[None]
        mean = found.held if kind == "held" else found.used
        if mean is None:
            raise InfoFlowError("expected the effects through single states, they were not measured; pass interior.")
        return mean.value[layer], mean.error[layer]

    def inside(self, layer: int, kind: SetKind = "content", threshold: float | None = None) -> Bool[np.ndarray, "r T"]:
        """Membership of every source (columns) in the set of every row; for selection without the content."""
        bar = self.threshold.value if threshold is None else threshold
        inside: np.ndarray = self.effect(layer, kind)[0] >= bar
        return inside & ~self.inside(layer, "content", threshold) if kind == "selection" else inside

    def members(self, position: int, layer: int, kind: SetKind = "content") -> tuple[int, ...]:
        """The set of a position behind a layer, sorted."""
        return tuple(int(s) + 1 for s in np.flatnonzero(self.inside(layer, kind)[self._row(position, layer)]))

    def unclear(self, position: int, layer: int, kind: SetKind = "content") -> tuple[int, ...]:
        """Sources whose effect is within two standard errors of the threshold: more draws might move them."""
        effect, error = (values[self._row(position, layer)] for values in self.effect(layer, kind))
        near = np.abs(effect - self.threshold.value) <= SURE * error
        return tuple(int(s) + 1 for s in np.flatnonzero(near & (error > 0)))

    def _row(self, position: int, layer: int) -> int:
        rows = 1 if layer == self.layers else self.content.held.value[layer].shape[0]
        row = 0 if layer == self.layers and position == self.T + 1 else position - 1
        if (layer == self.layers and position != self.T + 1) or not 0 <= row < rows:
            known = f"{self.T + 1}, the output" if layer == self.layers else f"1 to {rows}"
            raise InfoFlowError(f"expected a position behind layer {layer} ({known}), got {position}.")
        return row

    @property
    def output(self) -> tuple[int, ...]:
        """The content set of the output."""
        return self.members(self.T + 1, self.layers)

    def sizes(self, thresholds: Sequence[float] | np.ndarray = SWEEP) -> Float[np.ndarray, " thresholds"]:
        """The size of the output's content set at each threshold."""
        return np.array([(self.content.output >= bar).sum() for bar in thresholds], dtype=np.float64)

    @property
    def area(self) -> float:
        """The area under the curve of sizes over log threshold, 0.1% to 10%, as a mean size."""
        sizes = self.sizes()
        return float(((sizes[1:] + sizes[:-1]) / 2).mean())

    def mean_size(self, layer: int, kind: SetKind = "content") -> float:
        """Over the tokens; behind the last layer of the output."""
        inside = self.inside(layer, kind)
        return float(inside[: self.T if layer < self.layers else 1].sum(1).mean())

    def to_json(self) -> dict[str, Any]:
        kinds = [kind for kind in KINDS if self._has(kind)]
        sets = {
            kind: [[(np.flatnonzero(row) + 1).tolist() for row in self.inside(n, kind)] for n in self._of(kind)]
            for kind in kinds
        }
        return {
            "model": self.name,
            "T": self.T,
            "layers": self.layers,
            "draws": self.draws,
            "threshold": {"value": self.threshold.value, "origin": self.threshold.origin},
            "sets": sets,
            "output": {"effect": self.content.output, "standard_error": self.content.output_error},
            "unclear": list(self.unclear(self.T + 1, self.layers)),
            "area": self.area,
            "bracket": None if self.bracket is None else self.bracket.to_json(),
            "notes": list(self.notes),
        }

    def _has(self, kind: SetKind) -> bool:
        return kind != "selection" or self.free is not None

    def _of(self, kind: SetKind) -> range:
        """The layers of which this kind was measured."""
        found = self.free if kind == "selection" else self.content
        if kind != "held" and found is not None and found.used is None:
            return range(self.layers, self.layers + 1)
        return range(self.layers + 1)

    def figure(self) -> "Figure":
        """The sets layer by layer: the way of the content to the output in colour."""
        from infoflow.probes.measured_figures import draw_measured

        return draw_measured(self)

    def __str__(self) -> str:
        lines = [f"{self.name}  T={self.T}, {self.draws} draws for each token; threshold {self.threshold}"]
        lines += self.notes
        for layer in range(1, self.layers):
            lines.append(f"layer {layer}: {self._layer_text(layer)}")
        lines.append(f"layer {self.layers}: the output {self._sets_text(self.T + 1, self.layers)}")
        if self.bracket is not None:
            need, enough = self.bracket.necessary, self.bracket.sufficient
            lines.append(f"necessary, one by one: {_braces(need)}; enough together: {_braces(enough)}")
        lines.append(f"area under the sizes from 0.1% to 10%: {self.area:.3g} tokens")
        return "\n".join(lines)

    def _layer_text(self, layer: int) -> str:
        rows = self.content.held.value[layer].shape[0]
        if self.T > 12:
            return f"a state holds {self.mean_size(layer, 'held'):.3g} tokens on average"
        return "  ".join(f"I({t},{layer})={braces(self.members(t, layer, 'held'))}" for t in range(1, rows + 1))

    def _sets_text(self, position: int, layer: int) -> str:
        said = f"content {braces(self.members(position, layer))}"
        if self.free is not None:
            said += f", selection {braces(self.members(position, layer, 'selection'))}"
        unclear = self.unclear(position, layer)
        return said + (f", unclear {braces(unclear)}" if unclear else "")


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredFlows(Shown):
    """Several documents of one model: sizes by layer, with intervals over documents."""

    flows: tuple[MeasuredFlow, ...]

    def __getitem__(self, number: int) -> MeasuredFlow:
        return self.flows[number]

    def __len__(self) -> int:
        return len(self.flows)

    def size(self, layer: int, kind: SetKind = "content") -> tuple[float, float, float]:
        """The mean size behind a layer, with its interval over documents."""
        values = np.array([flow.mean_size(layer, kind) for flow in self.flows])
        return ratio_interval(values, np.ones(len(values)))

    def table(self) -> list[dict[str, Any]]:
        """One row per layer: (mean, low, high) of every kind that was measured."""
        first = self.flows[0]
        rows = []
        for layer in range(first.layers + 1):
            row: dict[str, Any] = {"layer": layer}
            rows.append(row)
            row.update(
                (kind, self.size(layer, kind)) for kind in KINDS if first._has(kind) and layer in first._of(kind)
            )
        return rows

    def to_json(self) -> dict[str, Any]:
        return {"layers": self.table(), "documents": [flow.to_json() for flow in self.flows]}

    def figure(self) -> "Figure":
        return self.flows[0].figure()

    def __str__(self) -> str:
        first = self.flows[0]
        lines = [
            f"{first.name}  {len(self)} documents, {first.draws} draws for each token; threshold {first.threshold}"
        ]
        lines += [
            "mean size of the sets (95% interval over documents)",
            f"  {'layer':>5}" + "".join(f"{k:>24}" for k in KINDS),
        ]
        for row in self.table():
            cells = "".join(f"{_interval(row.get(kind)):>24}" for kind in KINDS)
            where = "out" if row["layer"] == first.layers else row["layer"]
            lines.append(f"  {where:>5}{cells}")
        return "\n".join(lines)


def _interval(found: tuple[float, float, float] | None) -> str:
    return "" if found is None else f"{found[0]:.3g} [{found[1]:.3g}, {found[2]:.3g}]"


def _braces(members: Sequence[int]) -> str:
    return braces([s + 1 for s in members])
