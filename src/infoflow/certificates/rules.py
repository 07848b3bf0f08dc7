"""What a head and a block of the construction cost in error: softmax averages, and sums of tanh units.

**Softmax.** For every score vector rho of length T and every beta > 0

    0 <= max(rho) - sum_s p_s rho_s <= W((T-1)/e) / beta,      p = softmax(beta rho),

W the Lambert function, and the constant is attained: one score at the top, T-1 scores (1+W)/beta below it. Proof: put
u_s = beta (max - rho_s); stationarity of sum u e^-u / sum e^-u gives u_s = 1 + w for all s but one, w e^w = (T-1)/e.

**Powers.** Sums of tanh units compute u^k. With T = tanh and its Taylor coefficients t_m at b, a rule with slopes w_j
and coefficients c_j is

    u^k ~ sum_j c_j [T(b + w_j u) + (-1)^k T(b - w_j u)]     (b = 0, k odd: sum_j c_j T(w_j u)),

up to a constant that cancels wherever rules are used. The slopes are Chebyshev nodes and the coefficients solve
sum_j c_j w_j^m = [m = k] / (2 t_k) for the first orders m, so the error is a Taylor series without its first terms:
|error(u)| <= sum_m |t_m 2 sum_j c_j w_j^m - [m = k]| |u|^m + Cauchy tail. Everything below evaluates this series.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
from jaxtyping import Float

UNIT = 2.0**-53  # half an ulp of 1 in float64: the relative error of one rounding
ORDERS = 160  # Taylor terms kept exactly; the rest is the Cauchy tail
CENTRE = math.atanh(1.0 / math.sqrt(3.0))  # where |tanh''| is largest
_DIGITS = 60


def lambert_w(y: float) -> float:
    """W(y) for y >= 0, rounded upwards: Newton for w e^w = y converges from above because w e^w is convex."""
    if y <= 0.0:
        return 0.0
    w = math.log1p(y)  # log(1+y) >= W(y)
    for _ in range(50):
        step = (w - y * math.exp(-w)) / (1.0 + w)
        if step <= 1e-15 * w:
            break
        w -= step
    return w * (1.0 + 1e-14)


def softmax_gap(T: int, beta: float = 1.0) -> float:
    """The largest value of max(rho) - soft(rho) over score vectors of length T."""
    return lambert_w((T - 1) / math.e) / beta


def worst_scores(T: int, beta: float) -> list[float]:
    """The score vector that attains the gap."""
    w = lambert_w((T - 1) / math.e)
    return [0.0] + [-(1.0 + w) / beta] * (T - 1)


@dataclass(frozen=True, eq=False)
class PowerRule:
    """u^power from tanh units at `bias` with the given slopes and coefficients."""

    power: int
    bias: float
    slopes: Float[np.ndarray, " nodes"]
    coefficients: Float[np.ndarray, " nodes"]
    defects: Float[np.ndarray, " orders"]  # |coefficient of u^m in rule(u) - u^k|, m = 0..ORDERS
    tail_scale: float  # (mirror images) * sum |c_j| * max over the circle of |tanh|
    tail_radius: float  # radius of the circle

    @property
    def mirrored(self) -> bool:
        """True when every slope also appears as T(b - w u)."""
        return self.bias != 0.0

    def error(self, radius: float) -> float:
        """An upper bound of sup over |u| <= radius of |rule(u) - constant - u^power|."""
        ratio = radius / self.tail_radius
        if ratio >= 1.0:
            return math.inf
        powers = radius ** np.arange(ORDERS + 1)
        tail = self.tail_scale * ratio ** (ORDERS + 1) / (1.0 - ratio)
        return float(self.defects @ powers) * (1.0 + 1e-13) + tail

    def __call__(self, u: Float[np.ndarray, " ..."]) -> Float[np.ndarray, " ..."]:
        """The rule itself, without the constant sum_j 2 c_j T(b) of even powers."""
        z = np.multiply.outer(u, self.slopes)
        units = np.tanh(z)
        if self.mirrored:
            mirror = np.tanh(self.bias - z)
            units = np.tanh(self.bias + z) + (mirror if self.power % 2 == 0 else -mirror)
            if self.power % 2 == 0:
                units = units - 2.0 * np.tanh(self.bias)
        value: np.ndarray = units @ self.coefficients
        return value


@cache
def taylor(bias: float, orders: int = ORDERS) -> Float[np.ndarray, " orders"]:
    """Taylor coefficients of tanh at `bias` from y' = 1 - y^2, (m+1) t_{m+1} = [m=0] - sum_i t_i t_{m-i}, 60 digits."""
    with localcontext() as context:
        context.prec = _DIGITS
        double = (Decimal(bias) * 2).exp()
        t = [(double - 1) / (double + 1)]
        for m in range(orders):
            total = sum((t[i] * t[m - i] for i in range(m + 1)), Decimal(0))
            t.append(((1 if m == 0 else 0) - total) / (m + 1))
    return np.array([float(value) for value in t])


@cache
def circle_maximum(bias: float) -> tuple[float, float]:
    """(radius, bound of |tanh| on the circle of that radius about `bias`), radius = 0.9 |bias + i pi/2|.

    |tanh(x+iy)|^2 = 1 + (1 - 2 cos^2 y) / (sinh^2 x + cos^2 y); on an arc the right side is bounded by its value at the
    smallest |x| and the largest |y| of the arc (|y| < pi/2 there, so the poles stay outside).
    """
    radius = 0.9 * math.hypot(bias, math.pi / 2)
    radius = min(radius, 0.99 * math.pi / 2)  # keeps |y| < pi/2 on the circle for every bias
    arcs = 720
    theta = np.linspace(0.0, math.pi, arcs + 1)  # the lower half mirrors the upper one
    x = bias + radius * np.cos(theta)
    low, high = np.minimum(x[:-1], x[1:]), np.maximum(x[:-1], x[1:])
    nearest = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    y = radius * np.sin(theta)
    top = np.maximum(y[:-1], y[1:])
    top[(theta[:-1] <= math.pi / 2) & (theta[1:] >= math.pi / 2)] = radius
    cosine = np.cos(top) ** 2
    square = 1.0 + np.maximum(1.0 - 2.0 * cosine, 0.0) / (np.sinh(nearest) ** 2 + cosine)
    return radius, float(np.sqrt(square.max())) * (1.0 + 1e-9)


def power_rule(power: int, nodes: int, bias: float | None = None) -> PowerRule:
    """The Chebyshev rule for u^power with `nodes` slopes, the largest 1.

    Even powers: z_j = w_j^2 = (1 - cos(j pi / nodes))/2, j = 1..nodes, exact for all orders up to 2 nodes.
    Odd powers: w_j = cos(j pi / N), N = 2 nodes - 1, j = 0..nodes-1, exact for all orders up to N; for
    power 1, sum |c_j| = N exactly.
    """
    return _power_rule(power, nodes, rule_bias(power) if bias is None else bias)


@cache
def _power_rule(power: int, nodes: int, bias: float) -> PowerRule:
    if power % 2 == 0:
        z = [Decimal((1.0 - math.cos(j * math.pi / nodes)) / 2.0) for j in range(1, nodes + 1)]
        weights = _functional([Decimal(0), *z], power // 2)[1:]
        slopes = np.sqrt(np.array([float(value) for value in z]))
        moments = np.array([float(value) for value in weights])
        coefficients = moments / (2.0 * taylor(bias)[power])
    else:
        N = 2 * nodes - 1
        slopes = np.array([math.cos(j * math.pi / N) for j in range(nodes)])
        weights = _functional([Decimal(w) ** 2 for w in slopes.tolist()], (power - 1) // 2)
        factor = 1.0 if bias == 0.0 else 2.0
        coefficients = np.array([float(w) for w in weights]) / slopes / (factor * taylor(bias)[power])
    return measured_rule(power, bias, slopes, coefficients)


def measured_rule(power: int, bias: float, slopes: np.ndarray, coefficients: np.ndarray) -> PowerRule:
    """The rule of given numbers: its defects are computed from them, whatever they are."""
    order = np.arange(ORDERS + 1)
    images = 1.0 if bias == 0.0 else 2.0
    table = slopes[None, :] ** order[:, None]  # (orders, nodes)
    moments = images * table @ coefficients * taylor(bias)
    slack = images * 4e-16 * len(slopes) * (table @ np.abs(coefficients)) * np.abs(taylor(bias))
    moments[power] -= 1.0
    defects = np.abs(moments) + slack
    defects[order % 2 != power % 2] = 0.0
    defects[0] = 0.0  # the constant cancels in every use
    radius, maximum = circle_maximum(bias)
    scale = images * float(np.abs(coefficients).sum()) * maximum
    return PowerRule(power, bias, slopes, coefficients, defects, scale, radius)


def _functional(nodes: list[Decimal], degree: int) -> list[Decimal]:
    """Numbers g_j with sum_j g_j p(z_j) = coefficient of z^degree in p, for every polynomial p of degree < len(nodes).

    g_j is that coefficient in the j-th Lagrange polynomial.
    """
    with localcontext() as context:
        context.prec = _DIGITS
        result = []
        for j, zj in enumerate(nodes):
            polynomial, scale = [Decimal(1)], Decimal(1)
            for i, zi in enumerate(nodes):
                if i == j:
                    continue
                shifted = [Decimal(0), *polynomial]
                polynomial = [a - zi * b for a, b in zip(shifted, [*polynomial, Decimal(0)], strict=True)]
                scale *= zj - zi
            result.append(polynomial[degree] / scale if degree < len(polynomial) else Decimal(0))
        return result


@cache
def rule_bias(power: int) -> float:
    """Where |tanh^(k)| is large: 0 for k = 1, near 0 for other odd k, atanh(1/sqrt 3) for k = 2, the best of a grid for
    other even k. Every power has its own bias, so the units of a block show which power they serve."""
    if power == 1:
        return 0.0
    if power % 2 == 1:
        return 0.1 + 0.01 * power
    if power == 2:
        return CENTRE
    grid = [i / 40 for i in range(4, 41)]
    return max(grid, key=lambda b: abs(taylor(b)[power]))
