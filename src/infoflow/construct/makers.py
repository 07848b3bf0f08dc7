"""The functions behind the list of constructions (`infoflow.construct.catalogue`), one of each name.

Each takes every option of its construction, read and checked, and a seed, and returns a network with `.certificate` and
`.save(path)`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from infoflow import reading
from infoflow.construct.codec import Codec
from infoflow.construct.codec import codec as make_codec
from infoflow.construct.rank_one.context_map import ContextMap
from infoflow.construct.rank_one.data import read_data
from infoflow.construct.rank_one.equivariant import approximate_equivariant, function_named
from infoflow.construct.rank_one.equivariant_proof import CertifiedEquivariant, certificate_of
from infoflow.construct.rank_one.memorize import Memorizer, memorize
from infoflow.construct.rank_one.text import TextMemory, memorize_text, read_conll
from infoflow.construct.single_heads import SingleHead, single_head
from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.descent import InContextDescent, in_context_gd
from infoflow.construct.softmax_attention.expression import parse
from infoflow.construct.softmax_attention.grid import GridApproximator, grid_approximator
from infoflow.construct.softmax_attention.multi_head import MultiHeadTruncatedLinear, multi_head_truncated_linear
from infoflow.construct.softmax_attention.trajectory import DescentProblem
from infoflow.construct.softmax_attention.truncated_linear import TruncatedLinear, on_anchors
from infoflow.construct.softmax_attention.truncated_linear import truncated_linear as one_head
from infoflow.errors import InfoFlowError, unknown

Given = dict[str, Any]
TEXT_DIM = 16  # numbers a word of tagged text gets when nobody says


def truncated_linear(given: Given, seed: int) -> TruncatedLinear | MultiHeadTruncatedLinear:
    """Range_[a,b](w.x + t) by one head, or by H."""
    w, t, a, b, n = (given[name] for name in ("w", "t", "a", "b", "n"))
    eps, p, eps0 = given["eps"], given["p"], given["eps0"]
    if given["H"] is not None:
        if eps is not None or p is not None:
            raise InfoFlowError("expected --H alone (p = (n-2) H follows), got --eps or --p beside it; drop one.")
        return multi_head_truncated_linear(w, t, a, b, n=n, H=given["H"], eps0=eps0)
    if p is None:
        return one_head(w, t, a, b, 0.01 if eps is None else eps, n=n, grid=given["grid"])
    if eps is not None:
        raise InfoFlowError("expected either eps or p (with eps0), got both; give one of them.")
    return on_anchors(w, t, Anchors(a, b, p, given["grid"]), eps0, n)


def grid(given: Given, seed: int) -> GridApproximator:
    """A written function of a d x n input, looked up on a grid."""
    if given["heads"] not in ("factored", "paper"):
        raise unknown("choice of heads", given["heads"], ["factored", "paper"])
    settings = {name: given[name] for name in ("variant", "B", "delta", "eps1", "c", "lipschitz", "lazy")}
    f, paper = parse(given["function"], given["d"], given["n"]), given["heads"] == "paper"
    return grid_approximator(f, given["d"], given["n"], given["g"], paper_heads=paper, **settings)


def icgd(given: Given, seed: int) -> InContextDescent:
    """Gradient descent on the data, one attention layer a step."""
    problem, _ = descent_data(given["data"])
    (d, n), more = problem.x.shape, {name: given[name] for name in ("ridge", "p", "tau", "knots")}
    return in_context_gd(given["loss"], d, n, given["eta"], given["steps"], given["heads"], data=problem, **more)


def memorizer(given: Given, seed: int) -> Memorizer | TextMemory:
    """Every label of the data, or every tag of the text, by one rank-1 head."""
    data, conll, dense = given["data"], given["conll"], given["dense"]
    if (data is None) == (conll is None):
        raise InfoFlowError("expected --data FILE.json or --conll FILE, one of them; give one.")
    if data is None:
        d = TEXT_DIM if given["d"] is None else given["d"]
        if d < 1:
            raise InfoFlowError(f"expected d of at least 1, got {d}.")
        return memorize_text(read_conll(conll), d, seed, 4000 if dense is None else dense)
    for name in ("d", "dev"):
        if given[name] is not None:
            raise InfoFlowError(f"expected no --{name} with --data; it is an option of tagged text (--conll).")
    content = data if isinstance(data, Mapping) else read_data(data)
    about = {"head_size": given["head_size"], "seed": seed, "dense_places": dense}
    return memorize(content["X"], content["Y"], given["positions"], given["mask"], **about)


def context_map(given: Given, seed: int) -> ContextMap:
    """Different ids for different contexts of the data."""
    if given["draws"] is not None and given["draws"] < 1:
        raise InfoFlowError(f"expected --draws of at least 1, got {given['draws']}.")
    content = given["data"] if isinstance(given["data"], Mapping) else read_data(given["data"], ("X",))
    more = {name: given[name] for name in ("scale", "head_size", "mask", "merge", "draws")}
    return ContextMap.fit(content["X"], seed=seed, **more)


def equivariant(given: Given, seed: int) -> CertifiedEquivariant:
    """A function of tokens that commutes with their permutations, as a step function."""
    d, n, D, labels = (given[name] for name in ("d", "n", "D", "labels"))
    made = approximate_equivariant(function_named(given["function"], d, n), d, n, D, labels)
    return CertifiedEquivariant(made.network, made, given["function"], labels, certificate_of(made).claim.limit)


def codec(given: Given, seed: int) -> Codec:
    """m numbers through n and back."""
    made = make_codec(*(given[name] for name in ("m", "n", "eps", "activation", "p", "slope")))
    if not made.certificate.holds:
        raise InfoFlowError(
            f"expected a slope that keeps the error within eps={made.eps:g}, the bound is "
            f"{made.certificate.bound:.4g}; raise --slope or leave it out."
        )
    return made


def memory_head(given: Given, seed: int) -> SingleHead:
    """T d numbers in one head, and a read-out that takes the extrema."""
    return single_head("memory_head", given["target"], given["T"], given["eps"])


def exponential_head(given: Given, seed: int) -> SingleHead:
    """D means of exponentials in one head, and a read-out that takes their logarithms."""
    return single_head("exponential_head", given["target"], given["T"], given["eps"], given["units"])


def descent_data(source: Path | Mapping[str, Any]) -> tuple[DescentProblem, torch.Tensor | None]:
    """The problem of a file or a mapping, checked: lists of finite numbers of the right lengths and nothing else; and
    the input to predict at, where there is one."""
    mapped = isinstance(source, Mapping)
    payload = source if isinstance(source, Mapping) else reading.data_of(source, "a data file")
    where = "the data" if mapped else str(source)
    if not isinstance(payload, Mapping) or not {"x", "y"} <= payload.keys():
        raise InfoFlowError(f'expected an object with "x" (d rows of n numbers) and "y" in {where}; correct it.')
    for name in payload.keys() - {"x", "y", "w0", "x_u"}:
        raise InfoFlowError(f'expected only "x", "y", "w0" and "x_u" in {where}, got {name!r}; remove it.')
    rows = payload["x"]
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) and row for row in rows):
        raise InfoFlowError(f'expected "x" in {where} as d rows of n numbers, got something else.')
    if len({len(row) for row in rows}) != 1:
        raise InfoFlowError(f'expected rows of equal length in "x" of {where}, got different ones.')
    d, n = len(rows), len(rows[0])
    x = [_vector(f"row {i + 1} of x", row, n) for i, row in enumerate(rows)]
    numbers = (x, _vector("y", payload["y"], n), _vector("w0", payload.get("w0", [0.0] * d), d))
    asked = None if payload.get("x_u") is None else _double(_vector("x_u", payload["x_u"], d))
    return DescentProblem(*map(_double, numbers)), asked


def _double(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _vector(name: str, values: Any, length: int) -> list[float]:
    plain = isinstance(values, list) and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    if not plain or len(values) != length:
        found = f"{len(values)} entries" if isinstance(values, list) else type(values).__name__
        raise InfoFlowError(f"expected {length} numbers in {name}, got {found}; correct the data.")
    try:
        numbers = [float(value) for value in values]
    except OverflowError:
        numbers = [float("inf")]
    if not all(-1e150 < value < 1e150 for value in numbers):
        raise InfoFlowError(f"expected finite numbers in {name}, got one that is not; correct the data.")
    return numbers
