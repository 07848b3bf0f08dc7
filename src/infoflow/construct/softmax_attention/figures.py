"""Figures: how anchors are selected, error against p and H, descent and attention on one plot, heat maps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.descent import InContextDescent
from infoflow.construct.softmax_attention.grid import GridApproximator
from infoflow.construct.softmax_attention.heads import SoftmaxHead
from infoflow.construct.softmax_attention.multi_head import multi_head_truncated_linear
from infoflow.construct.softmax_attention.trajectory import DescentProblem
from infoflow.construct.softmax_attention.truncated_linear import TruncatedLinear, on_anchors
from infoflow.errors import InfoFlowError
from infoflow.report.style import COLOURS, INK, MUTED, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TOKENS = 7  # drawn one by one


def selection_picture(net: TruncatedLinear, X: Float[Tensor, "d n"]) -> "Figure":
    """The paper's Figure 1 for any input: each token's attention over the anchors around its z, and what comes out."""
    z = net.preactivation(X)[:MOST_TOKENS]
    if z.ndim != 1:
        raise InfoFlowError(f"expected one input of shape (d, n), got shape {tuple(X.shape)}; drop the batch axis.")
    made, (left, right) = figure(9.0, 3.6, 1, 2, width_ratios=[3, 2])
    grid = net.anchors
    near = ((z.clamp(grid.a, grid.b) - grid.first) / grid.spacing).round().clamp(0, grid.p - 1)
    for i, (value, k) in enumerate(zip(z.tolist(), near.tolist(), strict=True)):
        keys = torch.arange(max(0, int(k) - 3), min(grid.p, int(k) + 4), dtype=torch.float64)
        weights = torch.softmax(-net.c * ((value - grid.first) / grid.spacing - keys) ** 2, 0)
        colour = COLOURS[i % len(COLOURS)]
        left.bar((keys - int(k) + 8 * i).tolist(), weights.tolist(), width=0.8, color=colour, label=f"{value:.3g}")
        offset = (value - grid.first) / grid.spacing - int(k)
        left.plot([8 * i + min(3.5, max(-3.5, offset))], [1.06], marker="v", color=INK, clip_on=False)
        left.text(8 * i, -0.07, f"L = {grid.first + grid.spacing * k:.3g}", ha="center", color=MUTED, fontsize=7)
    left.set(xticks=[], ylim=(0, 1.1), ylabel="attention weight", title="anchors around each token's z (triangle)")
    left.grid(axis="x", visible=False)
    left.legend(title="z", ncols=1, loc="upper left", bbox_to_anchor=(1, 1), fontsize=7)
    width = grid.b - grid.a
    axis = torch.linspace(grid.a - 0.3 * width, grid.b + 0.3 * width, 2000, dtype=torch.float64)
    right.plot(axis.numpy(), axis.clamp(grid.a, grid.b).numpy(), color=MUTED, linewidth=3, alpha=0.4, label="Range(z)")
    right.plot(axis.numpy(), net.response(axis).numpy(), color=COLOURS[0], linewidth=1, label="head")
    right.scatter(
        z.tolist(), net.response(z).tolist(), color=[COLOURS[i % len(COLOURS)] for i in range(len(z))], zorder=3
    )
    right.set(xlabel="z = w.x + t", title=f"p = {grid.p}, beta = {net.beta:.3g}")
    right.legend()
    return made


def error_rates(a: float, b: float, n: int = 6) -> "Figure":
    """Attacked sup error with its bound, against p (one head) and against H (n keys a head), on log axes."""
    made, (left, right) = figure(8.4, 3.4, 1, 2)
    ps = [2**k for k in range(3, 12)]
    single = [on_anchors([1.0], 0.0, Anchors(a, b, p), 1 / (4 * p)) for p in ps]
    _rate(left, ps, single, "anchors p")
    Hs = [2**k for k in range(7)]
    multi = [multi_head_truncated_linear([1.0], 0.0, a, b, n=n, H=H, eps0=1 / (8 * n * H)) for H in Hs]
    _rate(right, Hs, multi, f"heads H (n = {n} tokens)")
    return made


def _rate(axes, sizes, nets, label) -> None:  # type: ignore[no-untyped-def]
    found = [net.attack(0, 1.0) for net in nets]
    axes.loglog(sizes, [net.certificate.bound for net in nets], "--", color=COLOURS[1], label="bound")
    axes.loglog(sizes, found, "o-", color=COLOURS[0], label="attacked sup error")
    axes.set(xlabel=label, ylabel="error", title=f"slope {slope(sizes, found):.2f}")
    axes.legend()


def slope(sizes: Sequence[float], errors: Sequence[float]) -> float:
    """Least-squares slope of log error against log size."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(errors).double().log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def trajectories(net: InContextDescent, problem: DescentProblem) -> "Figure":
    """Exact gradient descent and attention on one plot, and their distance against the propagated bound."""
    run = net.run(problem)
    made, (left, right) = figure(8.8, 3.6, 1, 2)
    steps = range(len(run.path))
    for r in range(min(net.d, len(COLOURS))):
        left.plot(steps, run.exact[:, r].numpy(), color=COLOURS[r], linewidth=4, alpha=0.3)
        left.plot(steps, run.path[:, r].numpy(), color=COLOURS[r], linewidth=1.2, label=f"w{r + 1}")
    left.set(xlabel="step", ylabel="weight", title=f"{net.loss.name} loss: descent (wide), attention (thin)")
    left.legend(ncols=2)
    gap = (run.path - run.exact).norm(dim=1).clamp(min=1e-17)
    right.semilogy(steps[1:], gap[1:].numpy(), color=COLOURS[0], label="|attention - descent|")
    bound = net.propagated(problem)
    if bound is not None:
        right.axhline(bound, color=COLOURS[1], linestyle="--", label="bound")
    right.set(xlabel="step", ylabel="distance", title=f"{net.heads_per_step} heads a step, {net.kind}")
    right.legend()
    return made


def heat_map(
    head: SoftmaxHead, Z: Float[Tensor, "rows tokens"], queries: int | None = None, title: str = "attention weights"
) -> "Figure":
    """Queries in rows (the first `queries` of them), keys in columns, counted from 1."""
    weights = head.weights(Z)[..., :queries, :]
    if weights.ndim != 2:
        raise InfoFlowError(f"expected one input, got a batch of shape {tuple(Z.shape)}; pick one of them.")
    rows, columns = weights.shape
    made, axes = figure(6.0, min(4.6, 1.6 + 0.25 * rows))
    extent = (0.5, columns + 0.5, rows + 0.5, 0.5)
    image = axes.imshow(weights.numpy(), aspect="auto", extent=extent, vmin=0, vmax=1, interpolation="nearest")
    if rows <= 12:
        axes.set_yticks(range(1, rows + 1))
    axes.set(xlabel="key", ylabel="query", title=title)
    axes.grid(visible=False)
    made.colorbar(image, ax=axes, label="weight")
    return made


def grid_picture(net: GridApproximator, points: int = 161) -> "Figure":
    """f, the network and their difference over a two-dimensional domain (a curve over a one-dimensional one)."""
    if net.N > 2 or net.outputs != 1:
        raise InfoFlowError(f"expected one or two coordinates and a scalar f, got {net.N}; plot a slice instead.")
    axis = torch.linspace(-net.B, net.B, points, dtype=torch.float64)
    if net.N == 1:
        made, axes = figure(6.0, 3.4)
        X = axis.reshape(-1, 1, 1)
        axes.plot(axis.numpy(), net.f(X).numpy(), color=MUTED, linewidth=3, alpha=0.4, label="f")
        axes.plot(axis.numpy(), net.fast(X).numpy(), color=COLOURS[0], linewidth=1, label=f"{net.variant}, g = {net.g}")
        axes.set(xlabel="x11", title="a grid of cells, selected by softmax")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return made
    X = torch.cartesian_prod(axis, axis).reshape(-1, net.d, net.n)
    exact, built = net.f(X).reshape(points, points), net.fast(X).reshape(points, points)
    made, three = figure(9.6, 3.2, 1, 3)
    names = ("x11", "x12" if net.n == 2 else "x21")
    extent = (-net.B, net.B, -net.B, net.B)
    low, high = float(exact.min()), float(exact.max())
    for axes, image, title in zip(three, (exact, built), ("f", f"{net.variant}, g = {net.g}"), strict=False):
        shown = axes.imshow(image.mT.numpy(), origin="lower", extent=extent, vmin=low, vmax=high, cmap="viridis")
        axes.set(title=title, xlabel=names[0], ylabel=names[1])
        axes.grid(visible=False)
    made.colorbar(shown, ax=three[1], shrink=0.8)
    gap = three[2].imshow((built - exact).abs().mT.numpy(), origin="lower", extent=extent, cmap="magma")
    three[2].set(title="error", xlabel=names[0], ylabel=names[1])
    three[2].grid(visible=False)
    made.colorbar(gap, ax=three[2], shrink=0.8)
    return made
