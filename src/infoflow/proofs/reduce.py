"""A trained one-layer network as a function of h softmax averages of its tokens.

The CLS of a one-layer network (nn/transformer.py) asks with one fixed query per head. With the linear encoder
e(t) = W x(t) + b its score of token t is beta <Q_k c, K_k e(t)> = q_k' x(t) + a constant that every token shares, so

    m_k = sum_t softmax_t(q_k' x(t)) x(t),      q_k = beta W' K_k' Q_k c,
    net = g(m_1 .. m_h),   g(m) = b_2 + sum_j c_j act(w_j' m + b_j),   m in R^(h d),

whatever T is: values, output matrix, residual and the read-out's first layer are multiplied out into w_j and b_j. The
products are computed in float64 and differ from those of the stored numbers by at most gamma_n times the same products
of absolute values (Higham, Accuracy and Stability, 3.5); `Reduced.rounding` carries that to the output.

The constant that every token shares cancels in the softmax, but not in float64: the network that runs adds it to every
score, and a score of size s is known to s u at best. So the scores of a run are off by up to gamma_n times all that is
summed in them, the constant included; `Reduced.noise` says how far that moves the averages.

gamma_n forgets products that leave float64. Every number on the way, here and in the run, is at most the product P of
the sums max(1, sum |entries|) of all matrices times 1 + max |x|, and a product below float64 loses 2^-1074 at most,
which the rest of its chain makes at most 2^-1074 P. Networks with P above LARGEST are refused; UNDERFLOW is above n
2^-1074 LARGEST for any n that fits in a memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from infoflow.certificates.rules import UNIT
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer

ARITHMETIC = "float64 with rounding allowance, for the stored weights run in float64"
ASSUMPTIONS = (
    "IEEE float64, round to nearest, exp, erf and tanh within 4 units in the last place",
    "sums in any order",
)
LARGEST = 1e100  # of products of weights, and of inputs: sums and squares of what is larger leave float64
UNDERFLOW = 1e-200  # what products below float64 may add up to
STEEPEST = {"gelu": 1.13, "relu": 1.0, "tanh": 1.0, "sigmoid": 0.25, "identity": 1.0}  # sup |act'|, rounded upwards


@dataclass(frozen=True, eq=False)
class Reduced:
    """g and the queries; `heads` x `dim` coordinates of m, in the order m_1, m_2, ..."""

    queries: Float[np.ndarray, "h d"]
    weight: Float[np.ndarray, "units hd"]  # w_j
    bias: Float[np.ndarray, " units"]  # b_j
    output: Float[np.ndarray, "outputs units"]  # c_j
    constant: Float[np.ndarray, " outputs"]  # b_2
    activation: str
    query_error: Float[np.ndarray, "h d"]  # |stored product - float64 product| of q_k is at most this
    unit_error: Float[np.ndarray, " units"]  # the same of w_j' m + b_j per unit of 1 + max |m|
    score_error: Float[np.ndarray, "h 2"]  # a run's score of a token is off by [0] max |x| + [1] at most
    relative_error: float  # gamma_n of the products

    @property
    def heads(self) -> int:
        return int(self.queries.shape[0])

    @property
    def dim(self) -> int:
        return int(self.queries.shape[1])

    def noise(self, largest: float, T: int) -> Float[np.ndarray, " h"]:
        """How far an average of T tokens, |x| <= largest, may be from that of the run: per head, in every coordinate.

        Scores that are off by at most s change every weight by a factor within e^(+-2 s); exp is within 4 units in the
        last place, sum and quotient add gamma_(T + 2). Weights off by a share e move the average by 2 e/(1 - e) times
        `largest`; where e reaches 1/2 nothing is known.
        """
        scores = self.score_error[:, 0] * largest + self.score_error[:, 1]
        with np.errstate(over="ignore", invalid="ignore"):
            share = np.expm1(2.0 * scores) + gamma(2 * T + 32)
            moved = 2.0 * share / (1.0 - share) * largest
        return np.where(share < 0.5, moved, np.inf)

    def rounding(self, largest: float, T: int) -> Float[np.ndarray, " outputs"]:
        """|network as it runs - g of the true averages| where |x| <= largest, per output.

        A unit's argument is off by unit_error (1 + largest) from the stored products, by as much again and
        gamma_(2 T + 32) of the same sums from the run's own evaluation, and by what `noise` moves the averages; act is
        within 4 units in the last place and has slope at most STEEPEST; the last sum adds gamma_(units + 2) times its
        absolute terms. |act(z)| <= |z| + 1 for every activation of the house.
        """
        noise = self.noise(largest, T)
        if not np.isfinite(noise).all() or largest > LARGEST:
            return np.full(len(self.constant), np.inf)
        off = (2.0 + gamma(2 * T + 32) / self.relative_error) * self.unit_error * (1.0 + largest)
        off = off + np.abs(self.weight) @ np.repeat(noise, self.dim)
        size = np.abs(self.weight).sum(1) * largest + np.abs(self.bias) + 1.0
        terms = STEEPEST[self.activation] * off + 8.0 * UNIT * size
        last = gamma(self.output.shape[1] + 2) * (np.abs(self.output) @ size + np.abs(self.constant))
        found: np.ndarray = 2.0 * (np.abs(self.output) @ terms + last) + UNDERFLOW
        return found

    def __call__(self, m: Float[np.ndarray, "... hd"]) -> Float[np.ndarray, "... outputs"]:
        from infoflow.proofs.lines import ACTS

        found: np.ndarray = ACTS[self.activation].value(m @ self.weight.T + self.bias) @ self.output.T + self.constant
        return found

    def averages(self, X: Float[np.ndarray, "... T d"]) -> Float[np.ndarray, "... hd"]:
        """The softmax averages of sequences."""
        scores = X @ self.queries.T  # (..., T, h)
        weights = np.exp(scores - scores.max(-2, keepdims=True))
        weights /= weights.sum(-2, keepdims=True)
        return np.asarray(np.swapaxes(weights, -1, -2) @ X).reshape(*X.shape[:-2], -1)


def gamma(n: int) -> float:
    """Bound of the relative error of n operations in float64; infinite where so many may lose everything."""
    return n * UNIT / (1.0 - n * UNIT) if n * UNIT < 0.5 else np.inf


def uncovered(network: Transformer) -> list[str]:
    """Why the argument above does not speak of this network; empty when it does."""
    c = network.config
    asked = {
        f"{c.layers} layers": c.layers != 1,
        "an encoder with a hidden layer": c.encoder == "mlp",
        "a skip in its encoder": c.encoder_skip,
        "a table of the vocabulary": c.encoder == "table",
        "positions": c.positions != "none",
        "layer norm": c.layer_norm,
        "hardmax": c.hard,
        "no CLS": not c.cls,
        "no read-out": not c.readout,
        f"{c.ffn_layers} hidden layers in its read-out": c.ffn_layers != 1,
        "a skip in its read-out": c.readout_skip,
        "model axes (take one model with .select)": bool(network.stack),
    }
    return [what for what, found in asked.items() if found]


@dataclass(frozen=True, eq=False)
class LayerMatrices:
    """The matrices of one attention layer that a fixed state asks, and of the read-out behind it."""

    tokens: Float[np.ndarray, "E d"]  # e(t) = tokens x(t) + offset
    offset: Float[np.ndarray, " E"]
    asking: Float[np.ndarray, "h n"]  # every head's query vector, its scale included
    asking_size: Float[np.ndarray, "h n"]  # the sum that made it, of absolute values
    key: Float[np.ndarray, "h n E"]
    key_bias: Float[np.ndarray, "h n"]  # moves all scores alike: only the scores' rounding knows of it
    value: Float[np.ndarray, "h m E"]
    output: Float[np.ndarray, "E hm"]
    still: Float[np.ndarray, " E"]  # what the state holds whatever the tokens are
    still_size: Float[np.ndarray, " E"]
    first: Float[np.ndarray, "units E"]
    first_bias: Float[np.ndarray, " units"]
    last: Float[np.ndarray, "outputs units"]
    last_bias: Float[np.ndarray, " outputs"]
    activation: str
    scale: float = 1.0  # in `asking`

    def products(self, size: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(queries, weight, bias); with `size` of the absolute values, which bounds every partial sum."""
        p = {f: np.abs(getattr(self, f)) if size else getattr(self, f) for f in MATRICES}
        p |= {"asking": self.asking_size, "still": self.still_size} if size else {}
        (h, m, _), W, b = self.value.shape, p["tokens"], p["offset"]
        queries = np.stack([(p["asking"][k] @ p["key"][k]) @ W for k in range(h)])
        mixed = [p["output"][:, k * m : (k + 1) * m] @ p["value"][k] for k in range(h)]  # (E, E) each
        state = np.concatenate([each @ W for each in mixed], axis=1)  # (E, h d)
        still = sum((each @ b for each in mixed), p["still"])
        return queries, p["first"] @ state, p["first"] @ still + p["first_bias"]

    def score_sizes(self) -> np.ndarray:
        """(h, 2): what is summed in a score, of absolute values, for a token of size 1 and for the token 0."""
        asked = zip(self.asking_size, np.abs(self.key), np.abs(self.key_bias), strict=True)
        keys = [(asking @ key, asking @ bias) for asking, key, bias in asked]
        moving, still = np.abs(self.tokens), np.abs(self.offset)
        return np.array([[(key @ moving).sum(), key @ still + bias] for key, bias in keys])


def reach(matrices: Iterable[np.ndarray]) -> float:
    """The product of max(1, sum |entries|): no product of some of them, in any order, has a larger entry."""
    with np.errstate(over="ignore"):
        return float(np.prod([max(1.0, float(np.abs(each).sum())) for each in matrices]))


def expect_moderate(matrices: Iterable[np.ndarray]) -> None:
    """Refuse networks whose numbers may leave float64 on their way."""
    if not reach(matrices) < LARGEST:
        raise InfoFlowError(
            f"expected weights whose products stay below {LARGEST:g}, got larger ones; float64 overflows in such a net."
        )


MATRICES = ("tokens", "offset", "asking", "key", "key_bias", "value", "output", "still", "first", "first_bias")


def reduce(network: Transformer) -> Reduced:
    """The stored matrices multiplied out; what the argument does not cover is refused by name."""
    reasons = uncovered(network)
    if reasons:
        raise InfoFlowError(
            f"expected one layer, a linear encoder and a read-out with one hidden layer, got {', '.join(reasons)}; "
            "no bound is known for such trained networks."
        )
    return multiplied(parts_of(network))


def multiplied(parts: LayerMatrices) -> Reduced:
    """The parts multiplied out, with the bounds of what float64 loses in it.

    A chain of products of inner sizes n_1, n_2, .. is off by at most gamma_(n_1 + n_2 + ..) times the same chain of
    absolute values; 4 E covers the products that made `asking` and `still`, 16 more the sums of heads.
    """
    if not all(np.isfinite(getattr(parts, name)).all() for name in (*MATRICES, "last", "last_bias")):
        raise InfoFlowError("expected finite weights, got NaN or infinity; the network has diverged.")
    stored = [getattr(parts, name) for name in (*MATRICES, "asking_size", "still_size", "last", "last_bias")]
    expect_moderate([*stored, np.array(parts.scale)])
    queries, weight, bias = parts.products()
    size = parts.products(size=True)
    (h, n, E), m = parts.key.shape, parts.value.shape[1]
    relative_error = gamma(2 * (parts.tokens.shape[1] + 4 * E + n + h * m) + 16)
    return Reduced(
        queries,
        weight,
        bias,
        parts.last,
        parts.last_bias,
        parts.activation,
        relative_error * size[0] + UNDERFLOW,
        relative_error * (size[1].sum(1) + size[2]) + UNDERFLOW,
        relative_error * parts.score_sizes() + UNDERFLOW,
        relative_error,
    )


def parts_of(network: Transformer) -> LayerMatrices:
    """The parts of a network of the house."""
    p = {name: value.detach().double().cpu().numpy() for name, value in network.state_dict().items()}
    c, E = network.config, network.config.embed[0]
    W = p["encoder.maps.0.weight"] if c.encoder == "linear" else np.eye(E)
    b = p["encoder.maps.0.bias"] if c.encoder == "linear" else np.zeros(E)
    cls, query, key = p["cls_token"], p["attentions.0.query"], p["attentions.0.key"]
    return LayerMatrices(
        W,
        b,
        c.betas[0] * (query @ cls),
        abs(c.betas[0]) * (np.abs(query) @ np.abs(cls)),
        key,
        np.zeros(key.shape[:2]),
        p.get("attentions.0.value", key),
        p["attentions.0.output"],
        cls if c.residual else np.zeros(E),
        np.abs(cls),
        p["readout.maps.0.weight"],
        p["readout.maps.0.bias"],
        p["readout.maps.1.weight"],
        p["readout.maps.1.bias"],
        c.readout_activation or c.activation,
        c.betas[0],
    )
