"""What is wrong in print in the softmax-attention paper, as code: each function computes the number that shows it."""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from infoflow.book.entry import Finding
from infoflow.book.statements.counts import claimed, counted
from infoflow.book.statements.exact_products import padded, positive_head
from infoflow.book.statements.relu_attention import relu_attention
from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.bumps import ReluBumps, centres
from infoflow.construct.softmax_attention.expression import parse
from infoflow.construct.softmax_attention.grid import GridApproximator, grid_approximator
from infoflow.construct.softmax_attention.heads import SoftmaxHead, attend
from infoflow.construct.softmax_attention.in_context import in_context_truncated_linear
from infoflow.construct.softmax_attention.lemma_f1 import beta_unique
from infoflow.construct.softmax_attention.multi_head import multi_head_truncated_linear
from infoflow.construct.softmax_attention.relu_networks import ReluNetwork, two_layer_attention
from infoflow.construct.softmax_attention.summed_range import range_head, shared_affine
from infoflow.construct.softmax_attention.truncated_linear import on_anchors, relu

F64 = torch.float64


def tensor(values: object) -> Tensor:
    """In float64."""
    return torch.tensor(values, dtype=F64)


def spread_of_values() -> Finding:
    """49 tied runners-up of value 1, a leader of value -1: an error of eps in the weights moves the output by 2 eps."""
    eps, values = 0.01, tensor([-1.0] + [1.0] * 49)
    scores = tensor([1.0] + [0.0] * 49)
    read = values @ torch.softmax(beta_unique(1.0, 50, eps) * scores, 0)
    return Finding("error of the value read (printed: at most 0.01)", float(read) + 1, "above", 0.01)


def _printed_head(a: float, b: float, p: int, eps0: float, z: Tensor) -> Tensor:
    """Theorem 3.4 with beta in W_Q and in W_K, as printed."""
    spacing = (b - a) / p
    beta = 2 * math.log((p - 2) / eps0) / spacing**2
    k = torch.arange(p, dtype=F64)
    L = a + spacing * k
    return torch.softmax(-(beta**2) * k * (L + L[0] - 2 * z[:, None]), 1) @ L


def beta_squared() -> Finding:
    """[0, 1000], p = 10, eps0 = 0.01: beta below 1 is squared and the softmax flattens."""
    z = tensor([0.0, 500.0, 1000.0])
    error = (_printed_head(0.0, 1000.0, 10, 0.01, z) - z).abs().max()
    return Finding("error of the printed head on [0, 1000] (printed: at most 110)", float(error), "above", 110.0)


def n_for_p() -> Finding:
    """ln(n - 1) with n = 2, p = 8: the softmax runs over p entries."""
    p, eps0 = 8, 0.01
    L = torch.arange(p, dtype=F64) / p
    weights = torch.softmax(-math.log(1 / eps0) * p**2 * (L[4] - L) ** 2, 0)
    return Finding(
        "weight off the nearest anchor with ln(n - 1) (printed: at most 0.01)", float(1 - weights[4]), "above", 0.01
    )


def two_anchors() -> Finding:
    """p = 2 makes ln(p - 2) = -inf, so beta = 0 is admitted."""
    L = tensor([0.0, 0.5])
    return Finding(
        "error at z = b with p = 2, beta = 0 (printed: at most 0.5)",
        float((torch.softmax(0 * L, 0) @ L - 1).abs()),
        "above",
        0.5,
    )


def two_rows() -> Finding:
    """G = identity, z between the anchors 3/8 and 1/2: two rows carry half each."""
    head = on_anchors([1.0], 0.0, Anchors(0.0, 1.0, 8), 0.01)
    L = head.anchors.points()
    rows = torch.softmax(-(head.beta / 2) * (0.4375 - L) ** 2, 0) * L
    error = max(0.4375 - float(rows[3]), float(rows[4]))
    return Finding("error in one row at z = 0.4375 (printed: at most 0.135)", error, "above", 0.135)


def slope_of_the_error() -> Finding:
    """Midpoint anchors, p = 16 to 1024: the mean squared error falls like 1/p^2."""
    z = torch.linspace(-1, 1, 20_011, dtype=F64)
    p = np.array([16, 64, 256, 1024])
    heads = [on_anchors([1.0], 0.0, Anchors(-1.0, 1.0, int(q), "midpoint"), 1e-3 / int(q)) for q in p]
    errors = [float((head.response(z) - z).square().mean()) for head in heads]
    slope = float(np.polyfit(np.log(p), np.log(errors), 1)[0])
    return Finding("slope of log MSE in log p (printed: -1)", slope, "below", -1.9)


def _printed_sentinels(z: float) -> float:
    """Theorem 3.9, a = 1, b = 2, n = 6, H = 4, all sentinels 0 as printed, at one token."""
    net = multi_head_truncated_linear([1.0], 0.0, 1.0, 2.0, n=6, H=4, eps0=0.01)
    total = torch.zeros(6, dtype=F64)
    for head in net.all_heads():
        W_V = head.W_V.clone()
        W_V[0, 1] = W_V[0, -1] = 0
        total = total + SoftmaxHead(head.W_K, head.W_Q, W_V)(net.affine(torch.full((1, 6), z, dtype=F64)))[0]
    return float(total[0])


def sentinels_at_b() -> Finding:
    """The last half cell of [a, b]: only head H is there, and its sentinel leads."""
    return Finding(
        "output at z = 2, the right end of [1, 2] (printed: within 0.083 of 2)", _printed_sentinels(2.0), "below", 1.9
    )


def sentinels_below_a() -> Finding:
    """z < a is never treated: head 1's left sentinel leads."""
    return Finding(
        "output at z = 0.875, left of [1, 2] (printed: within 0.083 of 1)", _printed_sentinels(0.875), "below", 0.9
    )


def shell_value() -> Finding:
    """N = 3, all |u| = 0.98, delta = 0.2."""
    u, delta = torch.full((3,), 0.98, dtype=F64), 0.2
    phi = ((u + 1) / delta).clamp(0, 1) + ((1 - u) / delta).clamp(0, 1) - 1
    return Finding("R_v on the shell for N = 3 (printed: at least 2)", float(phi.sum()), "below", 2.0)


def shell_measure() -> Finding:
    """N = 2, B = 1, delta = 0.2: the shells have measure (2B)^N (1 - (1-delta)^N) = 1.44."""
    net = ReluBumps(lambda x: torch.ones_like(x[..., 0]), 2, 5, 0.2)
    x = 2 * torch.rand(100_000, 2, generator=torch.Generator().manual_seed(0), dtype=F64) - 1
    return Finding(
        "measured measure of the shells (printed: 0.36)", 4 * float((net.fast(x) < 1).double().mean()), "above", 1.0
    )


def zero_on_faces() -> Finding:
    """On a face between cells the network is 0 for every g, so no sup-norm statement can hold."""
    net = ReluBumps(lambda x: torch.ones_like(x[..., 0]), 2, 64, 0.02)
    return Finding(
        "error at a face with g = 64, f = 1 (meant: small)",
        1 - float(net.fast(tensor([[1 - 2 / 64, 0.9]]))),
        "at least",
        1.0,
    )


def _grid_of_one() -> tuple[GridApproximator, Tensor]:
    """f = 1 on 16 cells, and layer 2's input at one point."""
    net = grid_approximator(parse("1", 1, 2), 1, 2, 4)
    rows = attend(net.first_layer(), shared_affine(tensor([[[0.3, -0.2]]]), net.anchors))
    return net, torch.cat([rows, net.table.expand(1, 1, 16)], -2)


def sum_for_mean() -> Finding:
    """(G.50) multiplies by 1_G: f = 1 comes out as G = 16."""
    net, Z = _grid_of_one()
    (head,) = net.second_layer()
    printed = SoftmaxHead(head.W_K, head.W_Q, head.W_V, torch.ones(16, 1, dtype=F64))(Z)
    return Finding("output for f = 1 with 16 cells (meant: 1)", float(printed), "above", 15.9)


def holes_for_bumps() -> Finding:
    """t = -+ g v/(delta B) without the 1/delta: at X = v the cell's own R_v is below others."""
    net = grid_approximator(parse("1", 1, 2), 1, 2, 4)
    levels, X = centres(1.0, 4), tensor([[[0.25, 0.75]]])
    cells = net._levels(torch.arange(net.cells))
    heads = []
    for cell in range(net.cells):
        for sign in (1.0, -1.0):
            W_O = torch.zeros(net.p, net.cells, dtype=F64)
            W_O[: net.n, cell] = 1
            t = -sign * 4 * levels[cells[cell]] / net.delta
            heads.append(range_head(tensor([sign * 4 / net.delta]), t, net.anchors, net.first_c, W_O))
    R = attend(heads, shared_affine(X, net.anchors))[0, 0]
    own = int(torch.nonzero((levels[cells] == X[0, 0]).all(1)))
    return Finding(
        "lead of another cell over the cell X stands on (printed: below 0)", float(R.max() - R[own]), "above", 0.5
    )


def uniform_columns() -> Finding:
    """With R in [0, N] (the -1 kept) a column with R = 0 is uniform and reads the mean of f."""
    net = grid_approximator(parse("sin(2*x11)+x11*x12", 1, 2), 1, 2, 4)
    X = tensor([[[0.75, 0.75]]])
    R = attend(net.first_layer(), shared_affine(X, net.anchors))[0, 0] - 2
    read = torch.softmax(net.beta * R[0] * R, 0) @ net.table[0]
    return Finding(
        "error at (0.75, 0.75) with the -1 kept (meant: small)", float((read - net.fast(X)[0]).abs()), "above", 0.5
    )


def dense_heads() -> Finding:
    """d = n = 2, g = 3, p = 81, as stated; 3,240 of the entries are not 0."""
    net = grid_approximator(parse("x11", 2, 2), 2, 2, 3, paper_heads=True, p=81)
    return Finding("entries of layer 1 (printed order: 26,260)", counted(net).dense, "above", claimed(2, 2, 3))


def growing_bound() -> Finding:
    """(G.64) contains |W_K' W_Q|, which grows with p, while the error falls: p = 3200 against p = 50."""
    generator = torch.Generator().manual_seed(0)
    W, t, eta = (torch.randn(*s, generator=generator, dtype=F64) for s in ((2, 3, 3, 2), (2, 3), (2, 3)))
    network = ReluNetwork(W, t, eta, 1.0)
    bounds = []
    for p in (50, 3200):
        head = two_layer_attention(network, p1=p, p2=p, shape=(2, 1), eps0=1e-4).second(0).head()
        size = float(torch.linalg.matrix_norm(head.W_K.mT @ head.W_Q, 2))
        b = network.reach
        bounds.append((b * 1e-4 + b / p) * (float(eta.abs().max()) * (1 + 4 * size) * 2 * 3**2.5 + 3))
    return Finding("(G.64) at p = 3200 over p = 50 (meant: below 1)", bounds[1] / bounds[0], "above", 1.0)


def halved_bias() -> Finding:
    """w.x = 0, t = 1 on [0, 2]: with -1 in M2 the head reads half of the bias."""
    net = in_context_truncated_linear(1, 1, Anchors(0.0, 2.0, 40), eps0=1e-3, bias="shared")
    out = replace(net, bias_coefficient=-1.0).explicit(tensor([[[0.0], [0.0], [1.0]]]))
    return Finding("output for w.x = 0, t = 1 (printed: within 0.052 of 1)", float(out), "below", 0.6)


def first_bias_only() -> Finding:
    """Three tokens, w = 0, biases 0, 1, 2: the printed M2 reads column 1 for all."""
    net = in_context_truncated_linear(1, 3, Anchors(-3.0, 3.0, 60), bias="shared")
    X = tensor([[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 2.0]]])
    return Finding(
        "error at token 3 with bias 2 (printed: at most 0.16)", float((net.explicit(X)[0, 2] - 2).abs()), "above", 1.5
    )


def lost_factor() -> Finding:
    """w = 0, y = 1, x = (1,0), (0,1), (-1,0): (w.x, y) is the same, the first gradient entries are -1, 0, 1."""
    x, y = tensor([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]]), torch.ones(3, dtype=F64)
    gradients = (torch.zeros(3, dtype=F64) - y) * x[0]
    return Finding(
        "least error of any function of (w.x, y) (printed: 0)",
        float(gradients.max() - gradients.min()) / 2,
        "at least",
        1.0,
    )


def no_outer_coefficients() -> Finding:
    """A sum of ReLUs is at least 0; the derivative of the squared loss at w.x - y = -1 is -1."""
    return Finding("error of every sum of ReLUs there (printed: 0)", max(0.0, -1.0) - -1.0, "at least", 1.0)


def saturation() -> Finding:
    """The ReLU head built for pre-activations up to 4, at 9."""
    head = relu([1.0], 0.0, 4.0, 0.01)
    return Finding(
        "error at 9 of a head with b = 4 (meant: small)", 9 - float(head.fast(tensor([[9.0]]))), "above", 4.9
    )


def zero_entry() -> Finding:
    """B+ - B- of the footnote has zeros: ln 0 = -inf, and 0 times infinity is no number."""
    A, X = torch.eye(1, dtype=F64), torch.ones(1, 2, dtype=F64)
    B = tensor([[1.0, -2.0], [0.0, 3.0]])
    plus, minus = (positive_head(A, part, 10.0)(padded(X)) for part in (B.clamp(min=0), (-B).clamp(min=0)))
    return Finding("outputs that are no numbers (printed: 0)", int((plus - minus).isnan().sum()), "above", 0)


def halved_absolute_values() -> Finding:
    """Layer 3 with I_n for C_s: a token of the other sign ties with padding, so sum a |S|/2 comes out."""
    S, a = tensor([[1, -0.5, 2], [0.3, 0.7, -1]]), tensor([[1, 1, -1], [-1, 1, 1]])
    net = relu_attention(torch.zeros(3, 2, 3, 1), S.mT, a.mT, beta=200.0)
    Z = torch.cat([torch.diag(S[0]), torch.diag(S[1])])
    Z = torch.cat([torch.cat([Z, torch.zeros(6, 1, dtype=F64)], 1), torch.eye(4, dtype=F64)])
    wanted = (a * torch.relu(S)).sum(0)
    error = (attend(net.last_layer(printed=True), Z)[0, :3] - wanted).abs().max()
    return Finding("error of the printed layer 3 (meant: at most 0.003)", float(error), "above", 1.0)


def zero_at_zero() -> Finding:
    """Without biases every such network vanishes at X = 0: f = 1 is out of reach."""
    w = torch.randn(3, 6, 3, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    net = relu_attention(w, torch.zeros(3, 6), torch.ones(3, 6))
    return Finding(
        "output at X = 0 without biases (wanted: 1)",
        float(net.explicit(torch.zeros(2, 3, dtype=F64)).abs().max()),
        "below",
        1e-9,
    )
