"""What is wrong in print in the rank-1 paper, as code: each function computes the number that shows it.

The relation of a finding is the one that the printed statement excludes (or, for a slip, the one that shows it).
"""

import math

import numpy as np

from infoflow.book.entry import Finding
from infoflow.book.statements.boltzmann import boltz, boltz_difference, gap_bound
from infoflow.construct.rank_one.contexts import contexts_of
from infoflow.construct.rank_one.equivariant import FUNCTIONS, approximate_equivariant, step_function
from infoflow.construct.rank_one.hardmax import HardmaxHead, HardmaxLayer, context_gap, separating_layer
from infoflow.construct.rank_one.head import RankOneHead
from infoflow.construct.rank_one.memorize import parameter_counts
from infoflow.construct.rank_one.positions import printed_encoding
from infoflow.construct.rank_one.projection import key_quality
from infoflow.construct.rank_one.scales import sufficient_scale
from infoflow.construct.rank_one.separation import separation


def relu(x: float) -> float:
    """max(x, 0)."""
    return max(x, 0.0)


def lemma_1_permutation() -> Finding:
    """Two vectors that differ as vectors and agree as multisets, 10 > 2 log 2 + 3 apart."""
    a, b = np.array([0.0, 10.0]), np.array([10.0, 0.0])
    gap = abs(float(boltz(a) - boltz(b)))
    return Finding("gap of (0, 10) and (10, 0) (printed: positive)", gap, "at most", 0.0)


def lemma_1_one_token() -> Finding:
    """(16) at n = 1 is 0, so it promises nothing; the constant of its own proof does."""
    a, b = np.array([3.0]), np.array([-3.0])
    return Finding(
        "bound of the proof at n = 1 (printed: 0)", gap_bound(a, b, "proof"), "above", gap_bound(a, b, "paper")
    )


def indices_114() -> Finding:
    """For a decreasing vector i > j gives a_i - a_j < 0: the printed hypothesis holds for no vector."""
    a = np.array([10.0, 0.0])
    return Finding("a_2 - a_1 of (10, 0) (printed: above delta > 3)", float(a[1] - a[0]), "below", 3.0)


def sign_of_lemma_6() -> Finding:
    """The text bounds boltz(a) - boltz(b) from below; that difference is negative, (103) has it right."""
    a, b = np.array([10.0, 0.0]), np.array([10.0, -1.0])
    return Finding("boltz(a) - boltz(b) (printed: positive)", float(boltz(a) - boltz(b)), "below", 0.0)


def equality_in_120() -> Finding:
    """At k + 1 = n the vector and its truncation are the same, so the strict inequality is an equality."""
    a = np.array([10.0, 0.0])
    return Finding("boltz(a) - boltz(a_1..a_(k+1)) (printed: not 0)", float(boltz(a) - boltz(a[:2])), "is", 0.0)


def hardmax_two_tokens() -> Finding:
    """Two heads, scores of opposite sign: they see maximum and minimum, which is the whole set."""
    _, gap = context_gap(separating_layer(2), tokens=6, n=2)
    return Finding("smallest distance of all 30 ids at n = 2 (printed: 0)", gap, "above", 1e-4)


def hardmax_three_tokens() -> Finding:
    """A head with zero scores adds the mean, so three tokens are known, too."""
    _, gap = context_gap(separating_layer(3), tokens=6, n=3)
    return Finding("smallest distance of all 60 ids at n = 3 (printed: 0)", gap, "above", 1e-4)


def hardmax_zero_scores() -> Finding:
    """The step the proof forgets: where all scores are 0 hardmax averages, and the middle tokens are seen."""
    one = np.ones((1, 1))
    layer = HardmaxLayer([HardmaxHead(one, one, 0 * one, one)])
    outputs = [float(layer(np.array([[1.0], [middle], [4.0]]))[0, 0]) for middle in (2.0, 3.0)]
    return Finding(
        "difference of first outputs for (1,2,4) and (1,3,4) (printed: 0)", outputs[1] - outputs[0], "above", 0.3
    )


def score_of_41() -> Finding:
    """With u = (1, 2), u' = (3, -1) the scores carry u.u' = 1; (41) prints u'.u' = 10."""
    u, u_prime = np.array([1.0, 2.0]), np.array([3.0, -1.0])
    v = np.array([2.0, 1.0])
    x, y = np.array([1.0, 0.5]), np.array([-1.0, 3.0])
    score = (np.outer(u, v) @ x) @ (np.outer(u_prime, v) @ y)
    factor = float(score / ((v @ x) * (v @ y)))
    return Finding("factor in the score (printed: u'.u' = 10)", factor, "is", float(u @ u_prime))


def _gaps(eps: float, r_min: float, r_max: float, V: int = 4, n: int = 5, d: int = 2) -> dict[str, float]:
    """log of the right sides of (42) as printed, (8) and (47)."""
    L = math.log(n)
    volume = (V + 1) ** 4 * math.pi * d * (2 * L + 3)
    exponent = -volume * r_max**2 / (4 * eps * r_min)
    return {
        "42": math.log(eps / (4 * r_max)) + 2 * math.log(L) + exponent - math.log(volume * r_max),
        "8": math.log(2 * L**2 * eps**2 * r_min / (r_max**2 * volume)) + exponent,
        "47": math.log(eps * r_min * L / (r_max**2 * volume)) + exponent,
    }


def factor_of_42() -> Finding:
    """(42) lost 8 eps r_min, here 1.2; times that it is (8)."""
    eps, r_min = 0.3, 0.5
    found = _gaps(eps, r_min, 2.0)
    return Finding("(8) over (42) as printed (printed: 1)", math.exp(found["8"] - found["42"]), "above", 1.19)


def factor_of_47() -> Finding:
    """Under X -> cX the ids and their gap scale by c; (47) stays, so for small c it is far above what holds."""
    base, tiny = _gaps(0.3, 0.5, 2.0), _gaps(0.3e-9, 0.5e-9, 2e-9)
    kept = (tiny["47"] - base["47"]) - (tiny["8"] - base["8"])
    return Finding("log of (47)'s excess after scaling by 1e-9 (printed: 0)", kept, "above", 20.0)


def query_direction() -> Finding:
    """v' gives two tokens one number, so it violates (72); the sufficient scale still exists and separates."""
    tokens = np.array([[1.0, 1.0], [2.0, 1.0], [4.0, 3.0]])
    v, w = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    contexts = contexts_of(tokens, np.array([[0, 1], [0, 2], [1, 2]]))
    scale = sufficient_scale(contexts, v, w) if key_quality(tokens @ w) == 0.0 else math.nan
    return Finding("a scale that separates although v' breaks (72)", scale, "above", 0.0)


def value_and_key() -> Finding:
    """Section 5 says that value and query share v_1; in (20), and in the construction, value and key do."""
    matrices = RankOneHead(np.array([1.0, 2.0]), np.array([3.0, -1.0]), np.array([0.1, 0.0])).matrices()
    rank = int(np.linalg.matrix_rank(np.vstack([matrices["W_V"], matrices["W_Q"]])))
    return Finding("rank of W_V over W_Q (printed: 1)", rank, "is", 2)


def dense_parameters() -> Finding:
    """d = 4, s = 2, 200 places: the count holds for independent numbers (1,027), not for matrix entries."""
    counts = parameter_counts(4, 2, 200, 200)
    return Finding("matrix entries of the network (printed: at most 1,640)", counts["dense"], "above", counts["paper"])


def _moved(d: int) -> tuple[float, float]:
    """(closest distance, largest norm) of the tokens +-0.99 after (48) with r_max = 1, n = 2."""
    tokens = np.vstack([np.full(d, 0.99 / math.sqrt(d)), np.full(d, -0.99 / math.sqrt(d))])
    moved = separation((tokens[:, None] + printed_encoding(2, d, 1.0)[None]).reshape(-1, d))
    return moved.distance, moved.largest


def encoding_48_separation() -> Finding:
    """d = 1, tokens 1.98 apart: neighbouring positions nearly meet."""
    return Finding("distance after (48) at d = 1 (printed: above 1.9)", _moved(1)[0], "below", 1.9)


def encoding_48_norm() -> Finding:
    """d = 4: the columns of (48) have norm 2 k r_max sqrt(d)."""
    return Finding("largest norm after (48) at d = 4 (printed: below 5)", _moved(4)[1], "above", 5.0)


def cube_of_52() -> Finding:
    """The network is 0 outside [0,1], where f need not be: over [-1,1], as printed, the error stays."""
    f, outside = FUNCTIONS["wave"], np.full((1, 2, 1), -0.25)
    net = approximate_equivariant(f, 1, 2, 16)
    return Finding(
        "error at -1/4 with 16 cells (printed: 0 in the limit)",
        float(np.abs(net(outside) - f(outside)).max()),
        "above",
        1.0,
    )


def closed_cells_54() -> Finding:
    """At z = 1/2, D = 2 both closed cells hold, so the printed sum is f(1/2) + f(1)."""
    z = 0.5
    printed = sum(1 + L for L in (0.5, 1.0) if L - 0.5 <= z <= L)
    held = float(step_function(lambda X: 1 + X, np.array([[[z]]]), 2, "corner")[0, 0, 0])
    return Finding("printed step function of 1 + x at 1/2 (half-open: 2)", printed, "above", held)


def steps_58() -> Finding:
    """D = 4, delta = 1e-6: the sum from t = 1 gives 0 at z = 0.1 where the cell's corner is 1/4."""
    D, delta, z = 4, 1e-6, 0.1
    printed = sum((relu((z - t / D) / delta) - relu((z - t / D) / delta - 1)) / D for t in range(1, D + 1))
    return Finding("(58) at 0.1 with D = 4 (meant: 0.25)", printed, "is", 0.0)


def signs_59() -> Finding:
    """The penalty should be -1 outside the cube; as printed it is +1 above it."""
    delta, z = 1e-6, 1.5
    u, w = (z - 1) / delta, -z / delta
    return Finding("(59) at 1.5 (meant: -1)", relu(u) - relu(u - 1) - relu(w) - relu(w - 1), "above", 0.9)


def strict_grid() -> Finding:
    """The grid has tokens at exactly 1/D from each other; Definition 1 asks for more than that."""
    D = 4
    grid = separation(np.array([[i / D, j / D] for i in range(1, D + 1) for j in range(1, D + 1)]))
    return Finding("closest distance of the grid (printed: above 1/4)", grid.distance, "at most", 1 / D)


def amplitude_65() -> Finding:
    """d = 2, n = 3: the context moves an id by up to dn/(4D), for every D; (65) says 1/(4D)."""
    d, n, D = 2, 3, 10**6
    moved = 1 / (4 * D * math.sqrt(d)) * d * n * math.sqrt(d)
    return Finding("how far a context moves an id, over 1/(4D) (printed: 1)", moved * 4 * D, "above", 1.0)


def bumps_67() -> Finding:
    """relu(u - 1) - relu(u) + relu(u + 1) grows without end; with -2 relu(u) it is a hat."""
    u = 10.0
    return Finding("the bump of (67) ten cells away (meant: 0)", relu(u - 1) - relu(u) + relu(u + 1), "above", 0.0)


def volume_after_69() -> Finding:
    """A cell of sequences is a cell of d n numbers: one of D = 3 levels in 2 coordinates has volume 1/9."""
    X = np.random.default_rng(0).random((20_000, 2, 1))
    return Finding(
        "measured volume of a cell, D = 3, d = 1, n = 2 (printed: 1/3)",
        float((np.floor(X * 3) == 1).all((1, 2)).mean()),
        "below",
        0.2,
    )


def prefix_of_a_set() -> Finding:
    """Appendix C, n = 21: a = (x, -x) and its prefix (x), 2x = 2 log n + 3, come closer than (16) allows."""
    n = 21
    x = math.log(n) + 1.5
    gap = abs(boltz_difference(np.array([x, -x]), np.array([x])))
    return Finding(
        "gap over the bound of (16) for a prefix (printed: above 1)",
        gap / (math.log(n) ** 2 * math.exp(-2 * x)),
        "below",
        1.0,
    )


def proportional_multisets() -> Finding:
    """(x, y) and (x, x, y, y) have one average at every scale: variable length with duplicates cannot be separated."""
    a, b = np.array([0.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0])
    worst = max(abs(boltz_difference(scale * a, scale * b)) for scale in (0.1, 1.0, 10.0, 100.0))
    return Finding("largest gap of proportional multisets over four scales", worst, "is", 0.0)
