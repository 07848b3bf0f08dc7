"""Saved constructions: the call that made them in the header, their numbers as tensors.

A loader makes the construction again and compares it with the file, tensor by tensor; a file whose numbers differ is
loaded with a certificate that does not hold, and says where.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoflow.arguments import shown
from infoflow.certificates import asked_of
from infoflow.certificates.certificate import expect_float64, is_finite
from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.descent import InContextDescent, in_context_gd
from infoflow.construct.softmax_attention.expression import parse
from infoflow.construct.softmax_attention.grid import GridApproximator, grid_approximator
from infoflow.construct.softmax_attention.losses import NAMED
from infoflow.construct.softmax_attention.multi_head import MultiHeadTruncatedLinear, multi_head_truncated_linear
from infoflow.construct.softmax_attention.trajectory import DescentProblem
from infoflow.construct.softmax_attention.truncated_linear import TruncatedLinear, on_anchors
from infoflow.errors import InfoFlowError
from infoflow.nn import files

Tensors = dict[str, Tensor]
LARGEST_SAVED_TABLE = 2_000_000


def save_truncated_linear(net: TruncatedLinear | MultiHeadTruncatedLinear, path: str | Path) -> Path:
    """Write the map and its numbers; the matrices follow from them."""
    header: dict[str, Any] = {"a": net.anchors.a, "b": net.anchors.b} if isinstance(net, TruncatedLinear) else {}
    if isinstance(net, TruncatedLinear):
        header |= {"n": net.n, "p": net.anchors.p, "eps0": net.eps0, "grid": net.anchors.kind}
    else:
        header |= {"a": net.a, "b": net.b, "n": net.n, "H": net.H, "eps0": net.eps0, "radius": net.radius}
    return files.write(path, "truncated_linear", _head_tensors(net), _stated(header, net))


def load_truncated_linear(tensors: Tensors, header: dict[str, Any]) -> TruncatedLinear | MultiHeadTruncatedLinear:
    """The loader of kind "truncated_linear": built again and compared with what is stored."""
    w, t = _tensor(tensors, "w"), _tensor(tensors, "t")
    a, b, n, eps0 = _numbers(header, {"a": float, "b": float, "n": int, "eps0": float})
    net: TruncatedLinear | MultiHeadTruncatedLinear
    if "H" in header:
        (H,) = _numbers(header, {"H": int})
        radius = None if header.get("radius") is None else _numbers(header, {"radius": float})[0]
        net = multi_head_truncated_linear(w, t, a, b, n=n, H=H, eps0=eps0, radius=radius)
    else:
        (p,) = _numbers(header, {"p": int})
        net = on_anchors(w, t, Anchors(a, b, p, str(header.get("grid"))), eps0, n=n)
    made: TruncatedLinear | MultiHeadTruncatedLinear = _compared(net, _head_tensors(net), tensors, header)
    return made


def _head_tensors(net: TruncatedLinear | MultiHeadTruncatedLinear) -> Tensors:
    if net.heads * net.n > LARGEST_SAVED_TABLE:
        raise InfoFlowError(
            f"expected at most {LARGEST_SAVED_TABLE} keys in a saved file, got {net.heads} heads x {net.n} tokens."
        )
    heads = [net.projections()] if isinstance(net, TruncatedLinear) else net.all_heads()
    tensors = {"w": net.w, "t": net.t}
    for h, head in enumerate(heads):
        tensors |= {f"head{h + 1}.{name}": getattr(head, name) for name in ("W_K", "W_Q", "W_V")}
    return tensors


def save_grid(net: GridApproximator, function: str, lipschitz: float | None, path: str | Path) -> Path:
    """Write the function's text and the grid's numbers with its table."""
    header = {name: getattr(net, name) for name in ("d", "n", "g", "variant", "B", "delta", "eps1", "c", "lazy", "p")}
    header |= {"function": function, "paper_heads": net.paper_heads, "lipschitz": lipschitz}
    return files.write(path, "grid", _grid_tensors(net), _stated(header, net))


def load_grid(tensors: Tensors, header: dict[str, Any]) -> GridApproximator:
    """The loader of kind "grid": built again and compared with what is stored."""
    d, n, g, p = _numbers(header, dict.fromkeys(("d", "n", "g", "p"), int))
    B, delta, eps1, c = _numbers(header, dict.fromkeys(("B", "delta", "eps1", "c"), float))
    lipschitz = None if header.get("lipschitz") is None else _numbers(header, {"lipschitz": float})[0]
    flags: dict[str, Any] = {name: header.get(name) is True for name in ("lazy", "paper_heads")}
    f = parse(str(header.get("function", "")), d, n)
    flags |= {"B": B, "delta": delta, "eps1": eps1, "c": c, "p": p, "lipschitz": lipschitz}
    net = grid_approximator(f, d, n, g, str(header.get("variant")), **flags)
    made: GridApproximator = _compared(net, _grid_tensors(net), tensors, header)
    return made


def _grid_tensors(net: GridApproximator) -> Tensors:
    """The table, unless it is large: f makes it again."""
    small = not net.lazy and net.cells * net.outputs <= LARGEST_SAVED_TABLE
    return {"table": net.table} if small else {"centre": torch.zeros(net.d, net.n, dtype=torch.float64)}


def save_descent(net: InContextDescent, path: str | Path) -> Path:
    """Write the loss, the data and the heads' tables."""
    if net.loss.name not in NAMED or net.problem is None:
        raise InfoFlowError("expected a named loss and data in a saved descent, got a network without; give both.")
    header = {name: getattr(net, name) for name in ("d", "n", "eta", "steps", "ridge", "kind", "p", "tau", "knots")}
    return files.write(path, "icgd", _descent_tensors(net), _stated({**header, "loss": net.loss.name}, net))


def load_descent(tensors: Tensors, header: dict[str, Any]) -> InContextDescent:
    """The loader of kind "icgd": built again and compared with what is stored."""
    d, n, steps, p, knots = _numbers(header, dict.fromkeys(("d", "n", "steps", "p", "knots"), int))
    eta, ridge = _numbers(header, dict.fromkeys(("eta", "ridge"), float))
    data = DescentProblem(*(_tensor(tensors, name) for name in ("x", "y", "w0")))
    tau = None if header.get("tau") is None else _numbers(header, {"tau": float})[0]
    loss, kind = str(header.get("loss")), str(header.get("kind"))
    net = in_context_gd(loss, d, n, eta, steps, kind, data=data, ridge=ridge, p=p, tau=tau, knots=knots)
    made: InContextDescent = _compared(net, _descent_tensors(net), tensors, header)
    return made


def _descent_tensors(net: InContextDescent) -> Tensors:
    assert net.problem is not None
    pieces = [piece for branch in net.gradient_heads.branches for _, piece in branch.pieces]
    tables = {f"table{k + 1}": piece.values for k, piece in enumerate(pieces)}
    return {"x": net.problem.x, "y": net.problem.y, "w0": net.problem.w0, **tables}


def _stated(header: dict[str, Any], net: Any) -> dict[str, Any]:
    return {**header, "eps": net.certificate.claim.limit, "certificate": net.certificate.to_json()}


def _tensor(tensors: Tensors, name: str) -> Tensor:
    if name not in tensors or not tensors[name].dtype.is_floating_point:
        raise InfoFlowError(f"expected a floating point tensor {name!r}, found none; the file is incomplete.")
    return tensors[name].double()


def _numbers(header: dict[str, Any], kinds: dict[str, Callable[[Any], Any]]) -> list[Any]:
    values = []
    for name, kind in kinds.items():
        value: Any = header.get(name)
        if not is_finite(value) or (kind is int and value != int(value)):
            raise InfoFlowError(f"expected a number {name!r} in the header, got {shown(value)}; the file is damaged.")
        values.append(kind(value))
    return values


def _compared(net: Any, expected: Tensors, stored: Tensors, header: dict[str, Any]) -> Any:
    """The network; its certificate claims what the file was asked for, and says where the file's numbers are not the
    construction's."""
    files.expect(stored, {name: tuple(tensor.shape) for name, tensor in expected.items()})
    expect_float64(stored.items())
    reasons = []
    for name, tensor in expected.items():
        wrong = torch.nonzero(stored[name] != tensor)
        if len(wrong):
            place = ", ".join(str(int(index) + 1) for index in wrong[0])
            reasons.append(f"{name}[{place}] differs from the construction")
    net.__dict__["certificate"] = net.certificate.limited_to(asked_of(header)).against(*reasons)
    return net
