"""Triton: attention for short sequences and small heads (T <= 512, head size 1 to 64), forward and backward.

Tiles are (keys, queries) with queries along the fast axis: a thread owns a query, so every reduction over keys stays in
its registers. Scores are rank-one updates over the head's coordinates: any head size, no padding, exact float32. The
forward pass keeps the row normaliser alone; the backward pass recomputes the scores.
"""

# mypy: disable-error-code="no-untyped-def"
import triton
import triton.language as tl


@triton.jit
def _column(pointer, rows, count, j, n: tl.constexpr):
    """Coordinate j of the given rows of a (count, n) matrix."""
    return tl.load(pointer + rows * n + j, mask=rows < count, other=0.0)


@triton.jit
def _scores(Q, K, keys, queries, T, R, scale, n: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr):
    S = tl.zeros((BK, BQ), tl.float32)
    for j in range(n):
        S += _column(K, keys, T, j, n)[:, None] * (scale * _column(Q, queries, R, j, n))[None, :]
    return tl.where(keys[:, None] < T, S, float("-inf"))


@triton.jit
def attention_forward(
    Q, K, V, OUT, LSE, R, T, scale, n: tl.constexpr, m: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr
):
    """Q (N, R, n), K (N, T, n), V (N, T, m) -> OUT (N, R, m), LSE (N, R); one program per (N, block of queries)."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    keys, queries = tl.arange(0, BK), block * BQ + tl.arange(0, BQ)
    S = _scores(Q + row * R * n, K + row * T * n, keys, queries, T, R, scale, n, BK, BQ)
    top = tl.max(S, axis=0)
    P = tl.exp(S - top[None, :])
    total = tl.sum(P, axis=0)
    tl.store(LSE + row * R + queries, top + tl.log(total), mask=queries < R)
    for j in range(m):
        value = tl.sum(P * _column(V + row * T * m, keys, T, j, m)[:, None], axis=0) / total
        tl.store(OUT + (row * R + queries) * m + j, value, mask=queries < R)


@triton.jit
def _backward_tile(
    Q, K, V, LSE, DOUT, DELTA, keys, queries, R, T, scale, n: tl.constexpr, m: tl.constexpr,
    BK: tl.constexpr, BQ: tl.constexpr,
):  # fmt: skip
    """P and dS of a tile; delta_t = <dout_t, out_t> is the row sum of P dP."""
    S = _scores(Q, K, keys, queries, T, R, scale, n, BK, BQ)
    lse = tl.load(LSE + queries, mask=queries < R, other=0.0)
    P = tl.where(queries[None, :] < R, tl.exp(S - lse[None, :]), 0.0)
    dP = tl.zeros((BK, BQ), tl.float32)
    for j in range(m):
        dP += _column(V, keys, T, j, m)[:, None] * _column(DOUT, queries, R, j, m)[None, :]
    delta = tl.load(DELTA + queries, mask=queries < R, other=0.0)
    return P, P * (dP - delta[None, :])


@triton.jit
def attention_backward_queries(
    Q, K, V, LSE, DOUT, DELTA, DQ, R, T, scale, n: tl.constexpr, m: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr
):
    """dQ of one block of queries, over all keys."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    keys, queries = tl.arange(0, BK), block * BQ + tl.arange(0, BQ)
    Q, K, V, DOUT = Q + row * R * n, K + row * T * n, V + row * T * m, DOUT + row * R * m
    LSE, DELTA = LSE + row * R, DELTA + row * R
    _, dS = _backward_tile(Q, K, V, LSE, DOUT, DELTA, keys, queries, R, T, scale, n, m, BK, BQ)
    for j in range(n):
        dq = scale * tl.sum(dS * _column(K, keys, T, j, n)[:, None], axis=0)
        tl.store(DQ + (row * R + queries) * n + j, dq, mask=queries < R)


@triton.jit
def attention_backward_keys(
    Q, K, V, LSE, DOUT, DELTA, DK, DV, R, T, scale, n: tl.constexpr, m: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr
):
    """One program per (N, block of keys); all queries in one block."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    keys, queries = block * BK + tl.arange(0, BK), tl.arange(0, BQ)
    Q, K, V, DOUT = Q + row * R * n, K + row * T * n, V + row * T * m, DOUT + row * R * m
    LSE, DELTA = LSE + row * R, DELTA + row * R
    P, dS = _backward_tile(Q, K, V, LSE, DOUT, DELTA, keys, queries, R, T, scale, n, m, BK, BQ)
    for j in range(m):
        dv = tl.sum(P * _column(DOUT, queries, R, j, m)[None, :], axis=1)
        tl.store(DV + (row * T + keys) * m + j, dv, mask=keys < T)
    for j in range(n):
        dk = scale * tl.sum(dS * _column(Q, queries, R, j, n)[None, :], axis=1)
        tl.store(DK + (row * T + keys) * n + j, dk, mask=keys < T)
