"""What is wrong in print in the InfoFlow paper (arXiv:2605.17930v1), as code: each function computes the number that
shows it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from infoflow.book.checks.infoflow import example_flow, least_heads
from infoflow.book.entry import Finding
from infoflow.book.formulas import informal_theorem_1, printed_47, printed_triangle
from infoflow.construct.builders import build
from infoflow.construct.codec import codec
from infoflow.construct.single_head_plans import exponential_head
from infoflow.flow.counting import capacity_count, counting_exponent, mode_cost, model_count, one_layer_count
from infoflow.nn import Transformer, attention
from infoflow.refutations.twins import codec_twins
from infoflow.targets.named import d_retrieval, min_pair, pairwise_max, star, sum_of_maxima, triangle_center
from infoflow.verdicts.bounds import theorem_4_exponent, theorem_5_exponent, theorem_5_log_width


def factor_of_item_3() -> Finding:
    """The first block of the state is x/3, so x.v tends to min/3; a third of that, (x/3).v, is what F_1 sees."""
    X = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (1, 9, 3)))
    v = attention(X / 3, -X / 3, X / 3, scale=1e6).values
    ratio = (X * v).sum(-1) / (X @ X.mT).amin(-1)
    return Finding("limit of x.v over min x.x (printed: 1/9)", float(ratio.mean()), "above", 0.33)


def fixed_temperature() -> Finding:
    """The same network with beta = 1/sqrt(n): scores are bounded and softmax cannot concentrate."""
    network: Any = build(min_pair(), 64, 0.1)
    warm = Transformer(replace(network.config, scales=())).double().requires_grad_(False)
    warm.load_state_dict(network.state_dict())
    X = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (50, 64, 3)))
    return Finding(
        "least error of the warm network (meant: at most 0.1)",
        float((warm(X) - min_pair()(X)).abs().min()),
        "above",
        1.0,
    )


def informal_exponent() -> Finding:
    """T = 64, H = 2, n = 6: the informal statement says 3, the formal one and its proof 46/15."""
    gap = theorem_4_exponent(64, 2, 6) - informal_theorem_1(64, 2, 6)
    return Finding("formal less informal exponent (printed as the same)", float(gap), "above", 0.0)


def three_exponents() -> Finding:
    """T = 64, k = 2, n = 4: informal (T-k-1)/(n+1) - 1, formal (T-k)/(n+1) - 1, proof (T-k+1)/(n+1) - 1."""
    informal = (64 - 2 - 1) / 5 - 1
    return Finding(
        "the proof's exponent less the informal one", float(theorem_5_exponent(64, 2, 4)) - informal, "above", 0.0
    )


def silent_at_usual_accuracy() -> Finding:
    """T = 64, k = 2: with its own constants the theorem needs eps < 1/(64 m); at 1e-3 it says nothing."""
    eps = 1e-3
    while not math.isfinite(theorem_5_log_width(64, 2, 4, eps)):
        eps /= 1.1
    return Finding("largest eps at which the theorem speaks, T = 64, k = 2, n = 4", eps, "below", 1e-3)


def unbounded_weights() -> Finding:
    """One head, D = 2 minima, T = 64: values e^(beta f) and a read-out with large weights reach eps = 0.2."""
    target = d_retrieval(D=2, d=1, seed=0)
    head = exponential_head(target, 64, 0.2)
    X = np.random.default_rng(0).random((200, 64, 1))
    return Finding(
        "error of one head without a weight bound (meant to be impossible: 0.2)",
        float(np.abs(head(X) - target(X)).max()),
        "at most",
        0.2,
    )


def dyadic_thresholds() -> Finding:
    """Latents are multiples of 2^-q; a smooth decoder that cuts exactly there sits on all of them."""
    made = codec(2, 1, 0.25, "tanh")
    q = made.latent_bits
    dyadic = np.broadcast_to(np.arange(1, 2**q) / 2.0**q, made.decoder.thresholds.shape)
    printed = replace(made, decoder=replace(made.decoder, thresholds=dyadic))
    V = np.random.default_rng(0).uniform(size=(4000, 2))
    return Finding(
        "L_2 error with thresholds on the latents over that with midpoints",
        printed.error(V, 2) / made.error(V, 2),
        "above",
        2.0,
    )


def borsuk_ulam() -> Finding:
    """The paper's own smooth codec, m = 2, n = 1, eps = 0.25: two opposite points share a latent."""
    made = codec(2, 1, 0.25, "tanh")
    twins = codec_twins(made.encode, 2, 1)
    error = max(twins.decoder_errors(made.decode, made.encode(twins.V[None])[0]))
    return Finding("sup error on the twins (assumed: at most 0.25)", error, "at least", 0.5 - 1e-9)


def empty_set() -> Finding:
    """The CLS before it has read: |I|^b1 - 1 = -1 as printed, 0 comparisons as meant."""
    printed = 0**2 - 1
    return Finding("comparisons inside an empty set (meant: 0)", printed, "below", 0)


def global_aggregation() -> Finding:
    """One head, global aggregation, T = 64: (5) counts 126, D(T - D) = 240 are needed, and Section 6 says it works."""
    return Finding(
        "comparisons by (5) (needed by Section 6: at least 240)", model_count(64, (1,), (), (64,), 1), "below", 240
    )


def bound_47() -> Finding:
    """T = 15, heads (3, 3), where sets of the sizes in the argument exist."""
    return Finding(
        "comparisons over the printed bound (printed: at most 1)",
        capacity_count(15, (3, 3), 2) / printed_47(15, 3, 3),
        "above",
        1.0,
    )


def heads_by_counting() -> Finding:
    """D = 4, T = 64: the lower bound that is proved, C(T, 2) - 2D, is met by one head a layer."""
    return Finding(
        "heads (h, h) that the proved count asks for (printed: at least 4)",
        least_heads(math.comb(64, 2) - 8, 64),
        "is",
        1,
    )


def growth_term() -> Finding:
    """b1 = 3: the printed HLT^b1 swallows a target of T^3 comparisons; the sum above it gives HLT^2."""
    T, H, L = 64, 2, 2
    return Finding("printed term over what the sum gives (printed: 1)", H * L * T**3 / (H * L * T**2), "above", 1.0)


def star_of_three() -> Finding:
    """max over triples of x1'A x2 + x3'B x2, within a proved 0.05: the network for 512 tokens is as wide as for 8."""
    networks: list[Any] = [build(star(k=3, d=2), T, 0.05) for T in (8, 512)]
    near, far = (sum(network.config.widths) for network in networks)
    return Finding("width for T = 512 over that for T = 8 (printed: grows with T)", far / near, "is", 1.0)


def one_network_for_all_lengths() -> Finding:
    """min over triples of |x + y + z|^2 in one dimension, eps = 0.5: one network with 41 heads at T = 3 and T = 300."""
    target: Any = triangle_center(1)
    network: Any = build(target, 1024, 0.5, weight_bound=None)
    rng = np.random.default_rng(0)
    samples = [rng.uniform(-1, 1, (4, T, 1)) for T in (3, 300)]
    worst = max(float(np.abs(network(torch.from_numpy(X)).numpy() - target(X)).max()) for X in samples)
    return Finding("largest error of one network at T = 3 and T = 300 (meant to grow)", worst, "at most", 0.5)


def triangle_formula() -> Finding:
    """E = 24, two layers: first T at which the printed exponent is positive (with the exact count: 111)."""
    first = next(T for T in range(3, 10_000) if printed_triangle(T, 2, 24) > 0)
    return Finding("first T with a positive printed exponent (Table 12 stops at 64)", first, "above", 64)


def triangle_exponent() -> Finding:
    """T = 64, heads (2, 2), E = 24, d = 2 with the proved count C(T, 3) - 3: no cost at all."""
    found = counting_exponent(math.comb(64, 3) - 3, 64, 2, (2, 2), (24, 24), 3)
    return Finding(
        "exact exponent at T = 64 (the text explains an NMSE of .84 at T = 16 by it)", float(found or 0), "is", 0.0
    )


def shared_winner() -> Finding:
    """D = 3 maxima of random directions: often one token wins two, so |I_F| < D on an open set."""
    target = sum_of_maxima(D=3, d=4, seed=0)
    X = target.sample(2000, 8, seed=0)
    share = float((target.active(X).sum(-1) < 3).mean())
    return Finding("share of inputs with fewer than D active tokens (printed: 0)", share, "above", 0.05)


def printed_sign() -> Finding:
    """With the printed scores +min the CLS reads {1}; the active set is {1, 3}."""
    return Finding(
        "tokens of the active set {1, 3} that the printed scores miss (printed: 0)",
        len({1, 3} - set(example_flow(1.0)[2])),
        "above",
        0,
    )


def three_laws() -> Finding:
    """Global aggregation at T = 64, d = 2, E = 8: eps^-T/E (Section 4.2), eps^(1-Td/E) (5.2), eps^-Td/E (6)."""
    laws = {64 / 8, float(mode_cost("global", 64, 2, 8)), 64 * 2 / 8}
    return Finding("different exponents in print for one mode", len(laws), "is", 3)


def cheaper_than_the_law() -> Finding:
    """sum of one pair maximum, d = 3, E_2 = 2: the law charges eps^-2, the compiled width barely grows."""
    networks: list[Any] = [build(pairwise_max(D=1, d=3, seed=0), 8, eps) for eps in (1e-1, 1e-3)]
    widths = [sum(network.config.widths) for network in networks]
    return Finding("growth of the width from eps = 0.1 to 0.001 (the law: 10,000)", widths[1] / widths[0], "below", 100)


def one_layer_heads() -> Finding:
    """D = 4, T = 12 < D^2: three heads make 35 comparisons, the target asks for 32, so s >= D is not forced."""
    return Finding(
        "comparisons of D - 1 heads (excluded when below D(T - D) = 32)", one_layer_count(3, 12), "at least", 32
    )
