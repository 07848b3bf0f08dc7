"""Triton: the token side of a folded two-layer Transformer, forward and backward (see `train/fold.py`).

Two kernels a direction. The first is attention over the data itself, one program per (sequence, head, query block):

    q_t = A' [x_t; 1],  p_t = softmax_s <q_t, x_s>,  r_t = sum_s p_ts x_s

The inner dimension is d (4 in the papers), so scores are d rank-one updates of a tile in registers: exact float32, no
padding of the head dimension, and one key block holds the whole sequence (T <= 512). The second runs the feed-forward
block and the read of the CLS over all tokens, one program per sequence:

    hidden_t = act(G' z_t + g),  p_i = softmax_t <u_i, hidden_t>,  pooled_i = sum_t p_it hidden_t

Nothing but Z and the row normalisers is kept for the backward pass: the rest is recomputed. Weight gradients leave as
one partial sum per sequence, so the result does not depend on the order in which programs run.
"""

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: RET505  (branches on constants are chosen when the kernel is compiled)
import triton
import triton.language as tl


@triton.jit
def _activate(x, ACT: tl.constexpr):
    if ACT == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACT == "relu":
        return tl.maximum(x, 0.0)
    elif ACT == "sigmoid":
        return tl.sigmoid(x)
    elif ACT == "identity":
        return x
    else:  # tanh(x) = 2 sigmoid(2x) - 1
        return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _slope(x, ACT: tl.constexpr):
    """The derivative of `_activate` at x."""
    if ACT == "gelu":
        bell = tl.exp(-0.5 * x * x) * 0.3989422804014327
        return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476)) + x * bell
    elif ACT == "relu":
        return tl.where(x > 0.0, 1.0, 0.0)
    elif ACT == "sigmoid":
        y = tl.sigmoid(x)
        return y * (1.0 - y)
    elif ACT == "identity":
        return x * 0.0 + 1.0
    else:
        y = 2.0 * tl.sigmoid(2.0 * x) - 1.0
        return 1.0 - y * y


@triton.jit
def _scores(X, A, keys, queries, T, d: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr):
    """Scores (BK, BQ) of every token against a block of queries; X (d, T) and A (d + 1, d) of this sequence and head.

    Queries run along the fast axis: a thread then owns one query and reduces over the keys in its own registers.
    """
    S = tl.zeros((BK, BQ), tl.float32)
    for j in tl.static_range(d):
        q = tl.zeros((BQ,), tl.float32) + tl.load(A + d * d + j)
        for a in tl.static_range(d):
            q += tl.load(X + a * T + queries, mask=queries < T, other=0.0) * tl.load(A + a * d + j)
        k = tl.load(X + j * T + keys, mask=keys < T, other=0.0)
        S += k[:, None] * q[None, :]
    return tl.where(keys[:, None] < T, S, float("-inf"))


@triton.jit
def attend_forward(X, A, Z, LSE, B, T, h, d: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr):
    """X (N, d, T), A (M, h, d+1, d) -> Z (N, d (h+1), T) = [x; r_1; ..; r_h] and LSE (N, h, T); N = M B sequences."""
    sequence, head, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    X += sequence * d * T
    A += ((sequence // B) * h + head) * (d + 1) * d
    Z += (sequence * (h + 1) + head + 1) * d * T
    keys, queries = tl.arange(0, BK), block * BQ + tl.arange(0, BQ)
    S = _scores(X, A, keys, queries, T, d, BK, BQ)
    top = tl.max(S, axis=0)
    P = tl.exp(S - top[None, :])
    total = tl.sum(P, axis=0)
    tl.store(LSE + (sequence * h + head) * T + queries, top + tl.log(total), mask=queries < T)
    for j in tl.static_range(d):
        x = tl.load(X + j * T + keys, mask=keys < T, other=0.0)
        tl.store(Z + j * T + queries, tl.sum(P * x[:, None], axis=0) / total, mask=queries < T)
    if head == 0:  # the residual: the token itself heads its row of Z
        for j in tl.static_range(d):
            own = tl.load(X + j * T + queries, mask=queries < T, other=0.0)
            tl.store(Z + (j - d) * T + queries, own, mask=queries < T)


@triton.jit
def attend_backward(X, A, LSE, DZ, DA, B, T, h, d: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr):
    """Given dZ, the partial gradient of A of this sequence, head and query block: DA (N, h, blocks, d+1, d)."""
    sequence, head, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    X += sequence * d * T
    A += ((sequence // B) * h + head) * (d + 1) * d
    DZ += (sequence * (h + 1) + head + 1) * d * T
    DA += ((sequence * h + head) * tl.num_programs(2) + block) * (d + 1) * d
    keys, queries = tl.arange(0, BK), block * BQ + tl.arange(0, BQ)
    inside = queries < T
    S = _scores(X, A, keys, queries, T, d, BK, BQ)
    lse = tl.load(LSE + (sequence * h + head) * T + queries, mask=inside, other=0.0)
    P = tl.where(inside[None, :], tl.exp(S - lse[None, :]), 0.0)
    dP = tl.zeros((BK, BQ), tl.float32)
    for j in tl.static_range(d):
        dr = tl.load(DZ + j * T + queries, mask=inside, other=0.0)
        x = tl.load(X + j * T + keys, mask=keys < T, other=0.0)
        dP += x[:, None] * dr[None, :]
    dS = P * (dP - tl.sum(P * dP, axis=0)[None, :])
    for j in tl.static_range(d):
        x = tl.load(X + j * T + keys, mask=keys < T, other=0.0)
        dq = tl.sum(dS * x[:, None], axis=0)
        for a in tl.static_range(d):
            own = tl.load(X + a * T + queries, mask=inside, other=0.0)
            tl.store(DA + a * d + j, tl.sum(dq * own, axis=0))
        tl.store(DA + d * d + j, tl.sum(dq, axis=0))


@triton.jit
def _hidden(Z, G, g, z, columns, w, zdim, BZ: tl.constexpr, PRECISION: tl.constexpr):
    """Pre-activations of a chunk of hidden units for all tokens; Z is the (BZ, BT) tile of this sequence."""
    inside = columns < w
    tile = tl.load(G + z[:, None] * w + columns[None, :], mask=(z[:, None] < zdim) & inside[None, :], other=0.0)
    shift = tl.load(g + columns, mask=inside, other=0.0)
    return tl.dot(tl.trans(Z), tile, input_precision=PRECISION) + shift[None, :]


@triton.jit
def _read(pointer, heads, columns, w, h: tl.constexpr):
    """An (h, w) matrix as a padded tile (BH, BW)."""
    mask = (heads[:, None] < h) & (columns[None, :] < w)
    return tl.load(pointer + heads[:, None] * w + columns[None, :], mask=mask, other=0.0)


@triton.jit
def _softmax_tokens(S, tokens, T, scale):
    """Softmax over axis 0 of scores (BT, BH), tokens beyond T excluded."""
    S = tl.where(tokens[:, None] < T, S * scale, float("-inf"))
    P = tl.exp(S - tl.max(S, axis=0)[None, :])
    return P / tl.sum(P, axis=0)[None, :]


@triton.jit
def pool_forward(
    Z, G, g, U, OUT, B, T, scale, h: tl.constexpr, w: tl.constexpr, zdim: tl.constexpr, ACT: tl.constexpr,
    BT: tl.constexpr, BZ: tl.constexpr, BW: tl.constexpr, BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Z (N, zdim, T), G (M, zdim, w), g (M, w), U (N, h, w) -> OUT (N, h, w)."""
    sequence = tl.program_id(0).to(tl.int64)
    model = sequence // B
    G += model * zdim * w
    g += model * w
    tokens, z, heads = tl.arange(0, BT), tl.arange(0, BZ), tl.arange(0, BH)
    mask = (z[:, None] < zdim) & (tokens[None, :] < T)
    tile = tl.load(Z + sequence * zdim * T + z[:, None] * T + tokens[None, :], mask=mask, other=0.0)
    S = tl.zeros((BT, BH), tl.float32)
    for chunk in tl.range(0, w, BW):
        columns = chunk + tl.arange(0, BW)
        hidden = _activate(_hidden(tile, G, g, z, columns, w, zdim, BZ, PRECISION), ACT)
        u = _read(U + sequence * h * w, heads, columns, w, h)
        S += tl.dot(hidden, tl.trans(u), input_precision=PRECISION)
    P = _softmax_tokens(S, tokens, T, scale)
    for chunk in tl.range(0, w, BW):
        columns = chunk + tl.arange(0, BW)
        hidden = _activate(_hidden(tile, G, g, z, columns, w, zdim, BZ, PRECISION), ACT)
        pooled = tl.dot(tl.trans(P), hidden, input_precision=PRECISION)
        inside = (heads[:, None] < h) & (columns[None, :] < w)
        tl.store(OUT + sequence * h * w + heads[:, None] * w + columns[None, :], pooled, mask=inside)


@triton.jit
def pool_backward(
    Z, G, g, U, DOUT, DZ, DG, Dg, DU, B, T, scale, h: tl.constexpr, w: tl.constexpr, zdim: tl.constexpr,
    ACT: tl.constexpr, BT: tl.constexpr, BZ: tl.constexpr, BW: tl.constexpr, BH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients: DZ (N, zdim, T), DU (N, h, w), and of this sequence alone DG (N, zdim, w), Dg (N, w)."""
    sequence = tl.program_id(0).to(tl.int64)
    model = sequence // B
    G += model * zdim * w
    g += model * w
    tokens, z, heads = tl.arange(0, BT), tl.arange(0, BZ), tl.arange(0, BH)
    inside_z = (z[:, None] < zdim) & (tokens[None, :] < T)
    tile = tl.load(Z + sequence * zdim * T + z[:, None] * T + tokens[None, :], mask=inside_z, other=0.0)
    S, dP = tl.zeros((BT, BH), tl.float32), tl.zeros((BT, BH), tl.float32)
    for chunk in tl.range(0, w, BW):
        columns = chunk + tl.arange(0, BW)
        hidden = _activate(_hidden(tile, G, g, z, columns, w, zdim, BZ, PRECISION), ACT)
        u = _read(U + sequence * h * w, heads, columns, w, h)
        dout = _read(DOUT + sequence * h * w, heads, columns, w, h)
        S += tl.dot(hidden, tl.trans(u), input_precision=PRECISION)
        dP += tl.dot(hidden, tl.trans(dout), input_precision=PRECISION)
    P = _softmax_tokens(S, tokens, T, scale)
    dS = scale * P * (dP - tl.sum(P * dP, axis=0)[None, :])
    dZ = tl.zeros((BZ, BT), tl.float32)
    for chunk in tl.range(0, w, BW):
        columns = chunk + tl.arange(0, BW)
        pre = _hidden(tile, G, g, z, columns, w, zdim, BZ, PRECISION)
        u = _read(U + sequence * h * w, heads, columns, w, h)
        dout = _read(DOUT + sequence * h * w, heads, columns, w, h)
        du = tl.dot(tl.trans(dS), _activate(pre, ACT), input_precision=PRECISION)
        inside = (heads[:, None] < h) & (columns[None, :] < w)
        tl.store(DU + sequence * h * w + heads[:, None] * w + columns[None, :], du, mask=inside)
        # Rows beyond T have P = dS = 0, so their dpre is 0 and they add nothing below.
        dpre = tl.dot(P, dout, input_precision=PRECISION) + tl.dot(dS, u, input_precision=PRECISION)
        dpre = dpre * _slope(pre, ACT)
        tl.store(Dg + sequence * w + columns, tl.sum(dpre, axis=0), mask=columns < w)
        inside = (z[:, None] < zdim) & (columns[None, :] < w)
        dG = tl.dot(tile, dpre, input_precision=PRECISION)
        tl.store(DG + sequence * zdim * w + z[:, None] * w + columns[None, :], dG, mask=inside)
        weights = tl.load(G + z[:, None] * w + columns[None, :], mask=inside, other=0.0)
        dZ += tl.dot(weights, tl.trans(dpre), input_precision=PRECISION)
    tl.store(DZ + sequence * zdim * T + z[:, None] * T + tokens[None, :], dZ, mask=inside_z)
