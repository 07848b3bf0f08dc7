"""Theorem 6 of the InfoFlow paper (arXiv:2605.17930v1): m numbers through n, in two-layer networks.

Each of the m coordinates is cut to L = ceil(log2(2m/eps)) bits; the m L bits are spread over n latents of
q = ceil(m L / n) bits. Encoder: m (2^L - 1) units with thresholds i/2^L, output weights are the jumps of the code.
Decoder: latents are multiples of 2^-q, so its n (2^q - 1) thresholds stand at the midpoints (i - 1/2)/2^q; a bit of V_j
adds 2^-l wherever it is stored, so both networks are genuinely two-layer. With Heaviside units the error is 2^-L,
attained at V_j = 1; with tanh units (1 + tanh(B x))/2 the claim is about L_p, and no continuous encoder with m > n
has sup error below 1/2 (Borsuk-Ulam: see `infoflow.refutations.twins`).
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from infoflow.certificates import Certificate, Claim, asked_of
from infoflow.certificates.certificate import is_finite
from infoflow.certificates.rules import UNIT
from infoflow.errors import InfoFlowError

MOST_NUMBERS = 2**27  # 1 GiB of float64
MOST_BITS = 50  # float64 holds a latent exactly
LARGEST_P = 64
WINDOW = 20.0  # tanh differs from +-1 by less than 1e-17 beyond


@dataclass(frozen=True, eq=False)
class Steps:
    """A two-layer network of units that each see one input: y = sum_j sum_i jumps[j, :, i] u(slope (x_j - t[j, i])).

    u is the Heaviside function 1{x >= 0} when slope is infinite, else (1 + tanh)/2. Thresholds of an input increase.
    """

    thresholds: Float[np.ndarray, "inputs units"]
    jumps: Float[np.ndarray, "inputs outputs units"]
    slope: float

    @property
    def units(self) -> int:
        """Steps of the staircase: one hidden unit each."""
        return int(self.thresholds.size)

    @property
    def parameters(self) -> int:
        """As a dense two-layer network: weights in, biases, weights out, output biases."""
        inputs, outputs, _ = self.jumps.shape
        return int(self.units * (inputs + 1 + outputs) + outputs)

    def __call__(self, x: Float[np.ndarray, "batch inputs"]) -> Float[np.ndarray, "batch outputs"]:
        made: np.ndarray = np.sum([self._one(j, x[:, j]) for j in range(x.shape[1])], axis=0)
        return made

    def _one(self, j: int, x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, "batch outputs"]:
        """Units far below x are 1, far above 0: their jumps are summed once, the few in between are evaluated."""
        t, jumps = self.thresholds[j], self.jumps[j]
        total = np.concatenate([np.zeros((1, jumps.shape[0])), np.cumsum(jumps.T, axis=0)])
        if math.isinf(self.slope):
            summed: np.ndarray = total[np.searchsorted(t, x, side="right")]
            return summed
        first = np.searchsorted(t, x - WINDOW / self.slope)
        last = np.searchsorted(t, x + WINDOW / self.slope)
        y = total[first]
        for offset in range(int((last - first).max(initial=0))):
            unit = np.minimum(first + offset, t.size - 1)
            live = first + offset < last
            y = y + (live * (1 + np.tanh(self.slope * (x - t[unit]))) / 2)[:, None] * jumps.T[unit]
        return y


@dataclass(frozen=True, eq=False)
class Codec:
    """V in [0,1]^m -> latent in [0,1]^n -> V; `certificate` says in which norm and how close."""

    encoder: Steps
    decoder: Steps
    bits: int  # L
    latent_bits: int  # q
    eps: float
    p: float  # of the L_p norm the tanh version speaks of
    certificate: Certificate

    @property
    def m(self) -> int:
        """Numbers that go in and come out."""
        return int(self.encoder.thresholds.shape[0])

    @property
    def n(self) -> int:
        """Numbers of the code, between encoder and decoder: what a head of that size could carry."""
        return int(self.decoder.thresholds.shape[0])

    @property
    def parameters(self) -> int:
        """Parameters of encoder and decoder together."""
        return self.encoder.parameters + self.decoder.parameters

    def encode(self, V: Float[np.ndarray, "batch m"]) -> Float[np.ndarray, "batch n"]:
        """The code of m numbers in [0, 1], n of them."""
        return self.encoder(np.asarray(V, dtype=np.float64))

    def decode(self, latent: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch m"]:
        """The m numbers that a code stands for."""
        return self.decoder(np.asarray(latent, dtype=np.float64))

    def __call__(self, V: Float[np.ndarray, "batch m"]) -> Float[np.ndarray, "batch m"]:
        return self.decode(self.encode(V))

    def error(self, V: Float[np.ndarray, "batch m"], p: float) -> float:
        """(mean |V - f(V)|_p^p)^(1/p) over the rows, the largest entry for p = inf."""
        miss = np.abs(V - self(V))
        return float(miss.max()) if math.isinf(p) else float((miss**p).sum(-1).mean() ** (1 / p))

    def attack(self, seed: int = 0, seconds: float = 1.0) -> float:
        """Heaviside: the largest error on corners, thresholds and random inputs; tanh: the L_p error of a sample."""
        generator = np.random.default_rng(seed)
        V = generator.uniform(size=(min(20_000, int(20_000 * max(seconds, 0.05))), self.m))
        if math.isfinite(self.encoder.slope):
            return self.error(V, self.p)
        grid = generator.integers(0, 2**self.bits + 1, size=V.shape) / 2**self.bits
        corners = generator.integers(0, 2, size=(64, self.m)).astype(np.float64)
        return max(self.error(X, math.inf) for X in (V, grid, np.nextafter(grid, 0), corners, np.ones((1, self.m))))

    def save(self, path: str | Path) -> Path:
        """Write both halves with what was asked; `load` makes the codec again."""
        import torch

        from infoflow.nn import files

        parts = {"encoder": self.encoder, "decoder": self.decoder}
        tensors = {f"{name}.{f}": torch.from_numpy(getattr(s, f)) for name, s in parts.items() for f in FIELDS}
        header = {
            "m": self.m,
            "n": self.n,
            "eps": self.eps,
            "p": self.p,
            "slopes": None if math.isinf(self.encoder.slope) else [self.encoder.slope, self.decoder.slope],
            "certificate": self.certificate.to_json(),
        }
        return files.write(path, "codec", tensors, header)


FIELDS = ("thresholds", "jumps")


class Sizes(NamedTuple):
    """Bits a coordinate, bits a latent number, and the units that take them apart and together."""

    bits: int
    latent_bits: int
    encoder_units: int
    decoder_units: int


def sizes(m: int, n: int, eps: float) -> Sizes:
    """L = ceil(log2(2m/eps)) by exact doubling, q = ceil(mL/n), m (2^L - 1) and n (2^q - 1) units."""
    if m < 1 or n < 1:
        raise InfoFlowError(f"expected m >= 1 and n >= 1, got m={m}, n={n}.")
    if not 0 < eps < math.inf:
        raise InfoFlowError(f"expected eps > 0, got {eps!r}.")
    bits = 1
    while 2**bits * Fraction(eps) < 2 * m:
        bits += 1
    q = -(-m * bits // n)
    if max(q, bits) > MOST_BITS:
        raise InfoFlowError(
            f"expected a codec that fits memory, m={m}, n={n}, eps={eps:g} needs more than {MOST_BITS} bits a number; "
            "take a larger eps or n."
        )
    return Sizes(bits, q, m * (2**bits - 1), n * (2**q - 1))


def codec(
    m: int,
    n: int,
    eps: float,
    activation: Literal["heaviside", "tanh"] = "heaviside",
    p: float = 2.0,
    slope: float | None = None,
) -> Codec:
    """The codec of Theorem 6. `slope` (tanh only) overrides the encoder slope, which is otherwise derived for eps."""
    if activation not in ("heaviside", "tanh"):
        raise InfoFlowError(f"expected activation heaviside or tanh, got {activation!r}.")
    if not 1 <= p <= LARGEST_P:
        raise InfoFlowError(
            f"expected 1 <= p <= {LARGEST_P}, got {p!r}; in the sup norm no tanh codec with m > n exists."
        )
    bits, q, encoder_units, decoder_units = sizes(m, n, eps)
    numbers = encoder_units * (n + 1) + decoder_units * (m + 1)
    if numbers > MOST_NUMBERS:
        raise InfoFlowError(
            f"expected a codec that fits memory, m={m}, n={n}, eps={eps:g} has {encoder_units + decoder_units} units; "
            "take a larger eps or n."
        )
    encoder, decoder = _encoder(m, n, bits, q), _decoder(m, n, bits, q)
    if activation == "heaviside":
        claim = Claim("|decode(encode(V)) - V| in the sup norm", float(eps), f"every V in [0, 1]^{m}")
        exact = Certificate(claim, 2.0**-bits, "exact", ("Heaviside units 1{x >= 0}",))
        return Codec(encoder, decoder, bits, q, eps, p, exact)
    rises = tanh_slopes(m, n, bits, q, eps, p, slope)
    return Codec(
        replace(encoder, slope=rises.encoder),
        replace(decoder, slope=rises.decoder),
        bits,
        q,
        eps,
        p,
        Certificate(
            Claim(f"the L_{p:g} norm of decode(encode(V)) - V", float(eps), f"V uniform in [0, 1]^{m}"),
            rises.bound,
            "float64 with rounding allowance",
            ("tanh within 4 units in the last place", "weights unbounded"),
            parts={"bits": rises.cut, "decoder": rises.tail, "bad set": rises.bad, "rounding": rises.rounding},
        ),
    )


class Slopes(NamedTuple):
    """Of the tanh units, and the bound they give with its parts."""

    encoder: float
    decoder: float
    bound: float  # on the L_p error
    cut: float
    tail: float
    bad: float
    rounding: float


def tanh_slopes(m: int, n: int, bits: int, q: int, eps: float, p: float, slope: float | None = None) -> Slopes:
    """Slopes and the L_p bound m^(1/p) (2^-L + tail + rounding) + (m |bad|)^(1/p).

    A unit R/B away from its threshold is within e^{-2R} of 0 or 1. Off the bad set (some V_j within R/B of a
    threshold, measure at most m 2^{L+1} R/B) each latent is within m 2^L e^{-2R} <= 2^-q/8 of its multiple of 2^-q when
    R = ln(8 m 2^{L+q})/2, and rounding moves it by less than that again; the midpoints are then 2^-q/4 away, so decoder
    slope 4 2^q R_d gives tail n 2^q e^{-2 R_d}, 2^-L/2 by the choice of R_d. Outputs lie in [0,1] everywhere (monotone
    units average codes), so the bad set costs at most m^(1/p) |bad|^(1/p): B = 5^p 2 m^2 2^L R / eps^p makes it eps/5,
    and the total less than eps (2^-L <= eps/(2m): cut and tail take 3/4 of it).

    Rounding: sums of exact codes are exact, and of the units of a layer at most 2^L (2^q) are evaluated, each with a
    relative error of 8 units, jumps at most 1; outputs err by at most n (8 2^q + 8) u, latents by m (8 2^L + 8) u.
    """
    R = math.log(8 * m * 2.0 ** (bits + q)) / 2 * (1 + 1e-12)
    if m * (8 * 2.0**bits + 8) * UNIT > 2.0**-q / 8:
        raise InfoFlowError(f"expected latents that float64 can tell apart, {q} bits a latent are too many; raise n.")
    tail = 2.0**-bits / 2
    decoder = 4 * 2.0**q * math.log(n * 2.0**q / tail) / 2 * (1 + 1e-12)
    encoder = 5**p * 2 * m * m * 2.0**bits * R / eps**p if slope is None else slope
    if not 0 < encoder < math.inf:
        raise InfoFlowError(f"expected a finite positive slope, got {encoder!r}.")
    measure = min(1.0, m * 2.0 ** (bits + 1) * R / encoder)
    cut, tail, bad = m ** (1 / p) * 2.0**-bits, m ** (1 / p) * tail, (m * measure) ** (1 / p)
    rounding = m ** (1 / p) * n * (8 * 2.0**q + 8) * UNIT
    return Slopes(encoder, decoder, (cut + tail + bad + rounding) * (1 + 1e-12), cut, tail, bad, rounding)


def _encoder(m: int, n: int, bits: int, q: int) -> Steps:
    levels = np.arange(2**bits)
    code = np.zeros((m, n, 2**bits))
    for j in range(m):
        for l in range(1, bits + 1):
            latent, place = _stored(j, l, bits, q)
            code[j, latent] += ((levels >> (bits - l)) & 1) * 2.0**-place
    thresholds = np.broadcast_to(levels[1:] / 2.0**bits, (m, 2**bits - 1)).copy()
    return Steps(thresholds, np.diff(code), math.inf)


def _decoder(m: int, n: int, bits: int, q: int) -> Steps:
    levels = np.arange(2**q)
    value = np.zeros((n, m, 2**q))
    for j in range(m):
        for l in range(1, bits + 1):
            latent, place = _stored(j, l, bits, q)
            value[latent, j] += ((levels >> (q - place)) & 1) * 2.0**-l
    thresholds = np.broadcast_to((levels[1:] - 0.5) / 2.0**q, (n, 2**q - 1)).copy()
    return Steps(thresholds, np.diff(value), math.inf)


def _stored(j: int, l: int, bits: int, q: int) -> tuple[int, int]:
    """Bit l (1-based) of coordinate j: its latent and its place there (weight 2^-place)."""
    number = j * bits + l - 1
    return number // q, number % q + 1


def from_saved(tensors: dict[str, Any], header: dict[str, Any]) -> Codec:
    """The loader of kind "codec": the construction is made again from m, n, eps and must equal what the file holds."""
    from infoflow.certificates.certificate import expect_float64
    from infoflow.nn import files

    m, n, p, slopes, eps = header.get("m"), header.get("n"), header.get("p"), header.get("slopes"), asked_of(header)
    steep = slopes is None or (isinstance(slopes, list) and len(slopes) == 2 and all(map(is_finite, slopes)))
    if type(m) is not int or type(n) is not int or not is_finite(p) or eps is None or not steep:
        raise InfoFlowError("expected m, n, eps, p and slopes in the header of a codec, got something else.")
    expect_float64(tensors.items())
    made = codec(m, n, eps, *(("heaviside", p) if slopes is None else ("tanh", p, float(slopes[0]))))
    parts = {"encoder": made.encoder, "decoder": made.decoder}
    expected = {f"{name}.{f}": getattr(steps, f) for name, steps in parts.items() for f in FIELDS}
    files.expect(tensors, {name: array.shape for name, array in expected.items()})
    stored = {name: tensor.double().numpy() for name, tensor in tensors.items()}
    wrong = [f"{name} differs from the construction" for name in expected if (stored[name] != expected[name]).any()]
    if slopes is not None and slopes[1] != made.decoder.slope:
        wrong.append(f"the decoder's slope is {slopes[1]:.17g}, the construction has {made.decoder.slope:.17g}")
    certificate = made.certificate.against(*wrong)
    return replace(
        made,
        encoder=replace(made.encoder, thresholds=stored["encoder.thresholds"], jumps=stored["encoder.jumps"]),
        decoder=replace(
            made.decoder,
            thresholds=stored["decoder.thresholds"],
            jumps=stored["decoder.jumps"],
            slope=made.decoder.slope if slopes is None else float(slopes[1]),
        ),
        certificate=certificate,
    )


class TanhUnit(NamedTuple):
    """A tanh(B x + C) + D, and the proved bound on its L_p(mu) distance to the Heaviside function."""

    A: float
    B: float
    C: float
    D: float
    bound: float


def heaviside_by_tanh(delta: float, p: float, mass: float, density: float, atom: float = 0.0) -> TanhUnit:
    """Lemma 1 with explicit constants, for a measure of total mass `mass` with `atom` at 0 and density at most
    `density` elsewhere near 0.

        |H - (1 + tanh(Bx + C))/2|_p^p <= 2 eta density + 2 mass e^{-2pR} + atom e^{-2pC},
        B = (R + C)/eta, so that B eta + C >= R and -B eta + C = -R.

    Each summand is made delta^p/4: eta = delta^p/(8 density), R = ln(8 mass/delta^p)/(2p), C = ln(4 atom/delta^p)/(2p).
    """
    if not delta > 0 or not p >= 1 or not mass > 0 or not density > 0 or not 0 <= atom <= mass:
        raise InfoFlowError(
            f"expected delta > 0, p >= 1, mass > 0, density > 0 and 0 <= atom <= mass, got {delta}, {p}, {mass}, "
            f"{density}, {atom}."
        )
    part = delta**p / 4
    eta = part / (2 * density)
    R = max(math.log(2 * mass / part) / (2 * p), 0.0)
    C = max(math.log(atom / part) / (2 * p), 0.0) if atom > 0 else 0.0
    total = part + 2 * mass * math.exp(-2 * p * R) + atom * math.exp(-2 * p * C)
    return TanhUnit(0.5, (R + C) / eta, C, 0.5, total ** (1 / p))
