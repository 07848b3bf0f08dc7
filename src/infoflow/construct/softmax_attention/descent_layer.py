"""The matrices of one descent step (Theorem 4.2 repaired) and of the read-out at a new x_u.

State, 2d + 2 rows: x (d), y, w (d), 1. Head (r, +-, branch, piece) works on D = 2d + 5 rows and p columns:

    A(S) = M1 S [I 0] + M2 S e_1 L' + C     rows: a x (d), b y +- a tau x_r, 1 | L_k w (d), L_k, L_k^2 | V_k
    W_Q = [I_{d+2} 0],  W_K = [2 lambda, .., 2 lambda, -lambda] on the key rows,  W_V sends V to row w_r,
    W_O = coef [1_n 1'; 0],  coef = -+ eta / (2 tau n).

Every other row of the state is left as it is, and w stays equal in all columns.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.construct.softmax_attention.descent import InContextDescent
from infoflow.construct.softmax_attention.heads import SoftmaxHead
from infoflow.construct.softmax_attention.table_head import Table
from infoflow.construct.softmax_attention.trajectory import DescentProblem


@dataclass(frozen=True)
class TableAffine:
    """S -> M1 S in the first columns, plus the state of the first token times the anchors L, plus C."""

    M1: Float[Tensor, "D rows"]
    M2: Float[Tensor, "D rows"]
    C: Float[Tensor, "D p"]
    L: Float[Tensor, " p"]

    def __call__(self, S: Float[Tensor, "rows columns"]) -> Float[Tensor, "D p"]:
        out = self.C + (self.M2 @ S[:, :1]) * self.L
        out[:, : S.shape[1]] += self.M1 @ S
        return out


def state(
    problem: DescentProblem, w: Float[Tensor, " d"], x_u: Float[Tensor, " d"] | None = None
) -> Float[Tensor, "rows columns"]:
    """The token matrix: x, y, the present weights and a one in every column; `x_u` adds the column to predict."""
    x, y = problem.x, problem.y
    if x_u is not None:
        x, y = torch.cat([x, x_u[:, None]], 1), torch.cat([y, y.new_zeros(1)])
    columns = x.shape[1]
    return torch.cat([x, y[None], w[:, None].expand(-1, columns), torch.ones(1, columns, dtype=x.dtype)])


def table_affine(d: int, a: float, b: float, shift: Float[Tensor, " d"], piece: Table) -> TableAffine:
    """`shift` is +- a tau e_r, the coefficients of x in the row that carries b y."""
    rows, D, L = 2 * d + 2, 2 * d + 5, piece.anchors
    M1, M2 = torch.zeros(D, rows, dtype=torch.float64), torch.zeros(D, rows, dtype=torch.float64)
    M1[:d, :d] = a * torch.eye(d, dtype=torch.float64)
    M1[d, d] = b
    M1[d, :d] = shift
    M1[d + 1, -1] = 1
    M2[d + 2 : 2 * d + 2, d + 1 : 2 * d + 1] = torch.eye(d, dtype=torch.float64)
    C = torch.zeros(D, piece.p, dtype=torch.float64)
    C[2 * d + 2], C[2 * d + 3], C[2 * d + 4] = L, L**2, piece.values
    return TableAffine(M1, M2, C, L)


def table_matrices(d: int, piece: Table, row: int, W_O: Float[Tensor, "p columns"]) -> SoftmaxHead:
    """W_Q, W_K, W_V of one table, whose answer is written into `row`."""
    D = 2 * d + 5
    W_Q, W_K = torch.zeros(d + 2, D, dtype=torch.float64), torch.zeros(d + 2, D, dtype=torch.float64)
    W_Q[:, : d + 2] = torch.eye(d + 2, dtype=torch.float64)
    W_K[:, d + 2 : 2 * d + 4] = 2 * piece.scale * torch.eye(d + 2, dtype=torch.float64)
    W_K[d + 1, 2 * d + 3] = -piece.scale
    W_V = torch.zeros(2 * d + 2, D, dtype=torch.float64)
    W_V[row, 2 * d + 4] = 1
    return SoftmaxHead(W_K, W_Q, W_V, W_O)


def step_heads(net: InContextDescent, columns: int) -> list[tuple[TableAffine | None, SoftmaxHead]]:
    """All heads of one step, each with the affine map before it (None: the state itself)."""
    d, n, tau = net.d, net.n, net.gradient_heads.tau
    heads: list[tuple[TableAffine | None, SoftmaxHead]] = []
    for branch in net.gradient_heads.branches:
        for weight, piece in branch.pieces:
            for r in range(d):
                for sign in (1.0, -1.0):
                    shift = torch.zeros(d, dtype=torch.float64)
                    shift[r] = sign * branch.a * tau
                    W_O = torch.zeros(piece.p, columns, dtype=torch.float64)
                    W_O[:n] = -sign * net.eta * weight / (2 * tau * n)
                    affine = table_affine(d, branch.a, branch.b, shift, piece)
                    heads.append((affine, table_matrices(d, piece, d + 1 + r, W_O)))
    if net.ridge:
        heads.append((None, _ridge_head(net)))
    return heads


def _ridge_head(net: InContextDescent) -> SoftmaxHead:
    """-eta ridge w, exactly: w is the same in all columns, so any attention weights do."""
    rows, d = 2 * net.d + 2, net.d
    flat = torch.zeros(1, rows, dtype=torch.float64)
    W_V = torch.zeros(rows, rows, dtype=torch.float64)
    W_V[d + 1 : 2 * d + 1, d + 1 : 2 * d + 1] = -net.eta * net.ridge * torch.eye(d, dtype=torch.float64)
    return SoftmaxHead(flat, flat, W_V)


def explicit_step(net: InContextDescent, S: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """S + sum of heads: one attention layer with a skip connection."""
    out = S.clone()
    for affine, head in step_heads(net, S.shape[1]):
        out = out + head(S if affine is None else affine(S))
    return out


def explicit_prediction(net: InContextDescent, S: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """The read-out layer: adds w.x_u to the label row of the last column."""
    piece = net.identity
    W_O = torch.zeros(piece.p, S.shape[1], dtype=torch.float64)
    W_O[S.shape[1] - 1, -1] = 1
    affine = table_affine(net.d, 1.0, 0.0, torch.zeros(net.d, dtype=torch.float64), piece)
    return S + table_matrices(net.d, piece, net.d, W_O)(affine(S))


def explicit_rounding(net: InContextDescent) -> float:
    """What expanded scores may add to one row w_r in one step: eta/tau times the tables' own."""
    pieces = [(abs(weight), piece) for branch in net.gradient_heads.branches for weight, piece in branch.pieces]
    return net.eta / net.gradient_heads.tau * sum(weight * piece.explicit_rounding for weight, piece in pieces)
