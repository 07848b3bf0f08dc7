"""Feed-forward blocks as sums of pieces: gain * prod_i (f_i . z - shift_i), each piece a small per_node of tanh units.

A product of k factors is polarised, prod_i y_i = 1/(2^(k-1) k!) sum_signs (prod s) (y_1 + s_2 y_2 + ... + s_k y_k)^k,
and every power is a rule of `certificates.rules`. With weights bounded by 1 a coefficient C is shared by ceil(|C|)
equal units; scaling the factors by p <= 1 inside the tanh costs 1/p^k in the coefficients.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

import numpy as np
from jaxtyping import Float

from infoflow.certificates.rules import UNIT, PowerRule, measured_rule, power_rule

MOST_NODES = 28  # nodes tried; with 12 or 40 the same rules are chosen (benchmarks/budget_constants.py)
INSIDE = 0.9  # share of its circle of convergence that a rule is used on: there the tail is below 1e-6 of its scale


@dataclass(frozen=True)
class ChosenRule:
    """A rule with the scales of its factors; `error` bounds |piece - gain * product| on the box of the factors."""

    rule: PowerRule
    scales: tuple[float, ...]
    error: float
    copies: tuple[int, ...]  # equal units per node
    amplitude: float  # sum of |output coefficients| over all units
    neurons: int


@dataclass(frozen=True)
class Piece:
    """gain * prod_i (factors[i] . z - shifts[i]) added to one output; `radii` bound the factors."""

    output: int
    gain: float
    factors: Float[np.ndarray, "power inputs"]
    shifts: tuple[float, ...]
    radii: tuple[float, ...]
    caps: tuple[float, ...]  # largest scale a factor may have, so that biases stay within the weight bound
    choice: ChosenRule | None = None

    @property
    def power(self) -> int:
        """How many factors are multiplied."""
        return len(self.factors)


@dataclass
class Block:
    """One two-layer tanh network: outputs_j = constants_j + sum of its pieces."""

    inputs: int
    outputs: int
    pieces: list[Piece] = field(default_factory=list)
    constants: dict[int, float] = field(default_factory=dict)
    _sizes: np.ndarray | None = field(default=None, repr=False)

    def of(self, output: int) -> list[Piece]:
        """The pieces of one output."""
        return [piece for piece in self.pieces if piece.output == output]

    def width(self, weight_bound: float | None) -> int:
        """Hidden units of the block as it is stored."""
        units = sum(piece.choice.neurons for piece in self.pieces if piece.choice is not None)
        return units + sum(constant_units(value, weight_bound) for value in self.constants.values())

    def rounding(self, weight_bound: float | None) -> Float[np.ndarray, " outputs"]:
        """Float64 allowance per output: every unit is a dot product of at most `inputs` terms with arguments below 4
        (error (inputs + 4) u * 4), a tanh (4 u), a coefficient and a sum over the whole width."""
        amplitude = np.zeros(self.outputs)
        for piece in self.pieces:
            if piece.choice is not None:
                amplitude[piece.output] += piece.choice.amplitude
        for output, value in self.constants.items():
            amplitude[output] += 2.0 * abs(value)
        return UNIT * amplitude * (4.0 * (self.inputs + 4) + 4.0 + self.width(weight_bound) + 2.0)

    def factor_errors(self, excess: Float[np.ndarray, " inputs"]) -> list[list[float]]:
        """|factor| . excess for every factor of every piece."""
        if self._sizes is None or len(self._sizes) != sum(piece.power for piece in self.pieces):
            rows = [piece.factors for piece in self.pieces]
            self._sizes = np.abs(np.concatenate(rows)) if rows else np.zeros((0, self.inputs))
        flat = (self._sizes @ excess).tolist()
        result, used = [], 0
        for piece in self.pieces:
            result.append(flat[used : used + piece.power])
            used += piece.power
        return result


def constant_units(value: float, weight_bound: float | None) -> int:
    """A constant above the bound is split: the bias takes the bound, units tanh(1) with coefficients <= 1 the rest."""
    if weight_bound is None or abs(value) <= weight_bound:
        return 0
    return math.ceil((abs(value) - weight_bound) * (1.0 + 1e-14) / (weight_bound * math.tanh(min(weight_bound, 1.0))))


@lru_cache(maxsize=4096)
def choose(
    power: int,
    gain: float,
    radii: tuple[float, ...],
    caps: tuple[float, ...],
    tolerance: float,
    weight_bound: float | None,
    kind: str,
) -> ChosenRule | None:
    """The rule with fewest units whose error is at most `tolerance`; None when float64 cannot hold one.

    `kind` "plain" allows one slope only (width of order 1/tolerance under a weight bound), "chebyshev" any number.
    """
    best: ChosenRule | None = None
    worse = 0
    least = (power + 1) // 2
    for nodes in range(least, least + 1 if kind == "plain" else MOST_NODES):
        candidate = _fit(power_rule(power, nodes), gain, radii, caps, tolerance, weight_bound)
        if candidate is None:
            continue
        if best is None or candidate.neurons < best.neurons:
            best, worse = candidate, 0
        else:
            worse += 1
            if worse == 3:
                break
    return best


def _fit(
    rule: PowerRule,
    gain: float,
    radii: tuple[float, ...],
    caps: tuple[float, ...],
    tolerance: float,
    weight_bound: float | None,
) -> ChosenRule | None:
    """Scale the factors to a common radius, as large as the tolerance allows (bisection keeps the safe side)."""
    low, high = 1e-9, max(max(radii), 1e-9)
    choice = scaled(rule, gain, radii, caps, high, weight_bound)
    if choice.error <= tolerance:
        return choice if choice.amplitude * 64 * UNIT <= tolerance else None
    for _ in range(26):
        middle = math.sqrt(low * high)
        if _error(rule, gain, radii, caps, middle) <= tolerance:
            low = middle
        else:
            high = middle
    choice = scaled(rule, gain, radii, caps, low, weight_bound)
    return choice if choice.error <= tolerance and choice.amplitude * 64 * UNIT <= tolerance else None


def _scales(radii: tuple[float, ...], caps: tuple[float, ...], common: float) -> tuple[float, ...]:
    return tuple(min(1.0, cap, common / r if r > 0 else 1.0) for r, cap in zip(radii, caps, strict=True))


def _error(rule: PowerRule, gain: float, radii: tuple[float, ...], caps: tuple[float, ...], common: float) -> float:
    """|gain| / (k! prod p) * (1/2 when k is even) * sup error of the power rule.

    For even k the 2^(k-1) signed powers have even orders and signs that balance, so half of them bounds their sum. Near
    its circle of convergence a rule is all Cauchy tail, which `certify` must bound without knowing of the balance: such
    a rule is not taken.
    """
    scales = _scales(radii, caps, common)
    reach = sum(p * r for p, r in zip(scales, radii, strict=True))
    if reach > INSIDE * rule.tail_radius:
        return math.inf
    half = 0.5 if rule.power % 2 == 0 else 1.0
    return abs(gain) * half / (math.factorial(rule.power) * math.prod(scales)) * rule.error(reach)


def scaled(
    rule: PowerRule,
    gain: float,
    radii: tuple[float, ...],
    caps: tuple[float, ...],
    common: float,
    weight_bound: float | None,
) -> ChosenRule:
    """The rule's coefficients for one piece, within the caps on its weights."""
    scales = _scales(radii, caps, common)
    k = rule.power
    factor = abs(gain) / (2 ** (k - 1) * math.factorial(k) * math.prod(scales))
    coefficients = factor * np.abs(rule.coefficients)
    copies = (
        np.ones(len(coefficients)) if weight_bound is None else np.ceil(coefficients / weight_bound * (1.0 + 1e-14))
    )
    copies = np.maximum(copies, 1.0)
    per_node = 2 ** (k - 1) * (2 if rule.mirrored else 1)
    amplitude = float(coefficients.sum()) * per_node
    error = _error(rule, gain, radii, caps, common)
    return ChosenRule(rule, scales, error, tuple(int(c) for c in copies), amplitude, int(per_node * copies.sum()))


def flag_choice(gain: float, weight_bound: float | None) -> ChosenRule:
    """gain * y for y in {0, 1} exactly: one tanh(y) with coefficient gain / tanh(1)."""
    rule = measured_rule(1, 0.0, np.array([1.0]), np.array([1.0 / math.tanh(1.0)]))
    coefficient = abs(gain) / math.tanh(1.0)
    copies = 1 if weight_bound is None else max(1, math.ceil(coefficient / weight_bound * (1.0 + 1e-14)))
    return ChosenRule(rule, (1.0,), 0.0, (copies,), coefficient, copies)


def units(piece: Piece) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(hidden weights, hidden biases, output coefficients) of a piece, one row per unit."""
    assert piece.choice is not None
    rule, scales, k = piece.choice.rule, piece.choice.scales, piece.power
    hidden, biases, outputs = [], [], []
    for signs in product((1.0, -1.0), repeat=k - 1):
        weights = np.array([1.0, *signs]) * np.array(scales)
        direction = weights @ piece.factors
        shift = float(weights @ np.array(piece.shifts))
        sign = math.prod(signs)
        factor = piece.gain * sign / (2 ** (k - 1) * math.factorial(k) * math.prod(scales))
        for slope, coefficient, copies in zip(rule.slopes, rule.coefficients, piece.choice.copies, strict=True):
            for image in (1.0, -1.0) if rule.mirrored else (1.0,):
                flip = image if k % 2 else 1.0
                hidden += [image * slope * direction] * copies
                biases += [rule.bias - image * slope * shift] * copies
                outputs += [flip * factor * coefficient / copies] * copies
    return np.array(hidden), np.array(biases), np.array(outputs)
