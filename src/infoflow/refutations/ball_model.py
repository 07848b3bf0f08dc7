"""The states of the Transformer and the values of a Target, enclosed in balls with derivatives."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from infoflow.nn import Transformer
from infoflow.nn.transformer import AttentionLayer, FeedForward
from infoflow.refutations.balls import Balls, Scalar, activation, constant, exact
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import TreeScore, tree_form
from infoflow.targets.target import Extremum, KthLargest, PositionSum, Target, Term

LAYER_NORM_EPS = 1e-5  # torch.nn.functional.layer_norm's default, which the Transformer uses
MOST_TUPLES = 20_000

Watch = Callable[[], None]  # called before every long operation; it may raise to stop the evaluation


def ball_state(model: Transformer, X: Balls, watch: Watch = lambda: None) -> Balls:
    """The state the read-out sees, (1, E_L), for tokens X (T, d); the model is the stored weights, read exactly."""
    T, variables = X.shape[0], len(X.slopes)
    config = model.config
    x = X if model.encoder is None else _feed_forward(model.encoder, X, watch)
    cls = constant(exact(_numpy(model.cls_token)), variables)
    if model.position is not None:
        table = constant(exact(_numpy(model.position)[:T]), variables)
        x = x.beside(table) if config.positions == "augmented" else x + table
    x = x.above(cls)
    for l in range(config.layers):
        layer = model.attentions[l]
        assert isinstance(layer, AttentionLayer)
        x = _attend(layer, x, T, l == config.layers - 1, watch)
        if l < config.layers - 1:
            block = model.ffns[l]
            assert isinstance(block, FeedForward)
            x = _feed_forward(block, x, watch)
    return x


def has_smaller_core(model: Transformer) -> bool:
    """One layer over a linear encoder without positions, fewer numbers in a token than in a head: see `ball_core`."""
    config = model.config
    plain = config.encoder == "linear" and not config.encoder_skip and config.positions == "none"
    return config.layers == 1 and plain and config.dim < config.head_dims[0]


def ball_core(model: Transformer, X: Balls, watch: Watch = lambda: None) -> Balls:
    """A row of numbers that determines the state of a model with `has_smaller_core`.

    R = c + sum_h M_h (W m_h + b), M_h = W_O,h W_V,h, depends on X through the attended means m_h = sum_s p_hs x(s)
    alone, d numbers a head, and has rank h d < E when d < n. Equal means give equal states.
    """
    assert model.encoder is not None
    layer = model.attentions[0]
    assert isinstance(layer, AttentionLayer)
    tokens = _feed_forward(model.encoder, X, watch)
    cls = constant(exact(_numpy(model.cls_token)), len(X.slopes))
    means: Balls | None = None
    for head in range(layer.query.shape[0]):
        watch()
        mean = _weights(layer, head, cls, tokens, [X.shape[0]]) @ X
        means = mean if means is None else means.beside(mean)
    assert means is not None
    return means


def _weights(layer: AttentionLayer, head: int, asked: Balls, keys: Balls, visible: list[int]) -> Balls:
    q = asked @ exact(_numpy(layer.query[head]).T)
    k = keys @ exact(_numpy(layer.key[head]).T)
    made: Balls = (q @ k.mT).scaled(float(layer.beta)).softmax(visible)
    return made


def _attend(layer: AttentionLayer, x: Balls, T: int, cls_only: bool, watch: Watch) -> Balls:
    rows = x.shape[0]
    asked, keys = x.rows(T, rows) if cls_only else x, x.rows(0, T)
    causal = layer.mask == "causal" and not cls_only
    visible = [t + 1 if causal and t < T else T for t in range(asked.shape[0])]
    value = layer.key if layer.value is None else layer.value
    joined: Balls | None = None
    for head in range(layer.query.shape[0]):
        watch()
        out = _weights(layer, head, asked, keys, visible) @ (keys @ exact(_numpy(value[head]).T))
        joined = out if joined is None else joined.beside(out)
    assert joined is not None
    update = joined @ exact(_numpy(layer.output).T)
    result = asked + update if layer.residual else update
    if layer.norm is None:
        made: Balls = result
        return made
    normal = result.normalised(LAYER_NORM_EPS)
    gain = constant(exact(np.diag(_numpy(layer.norm.weight))), len(x.slopes))
    return _plus_row(normal @ gain, _numpy(layer.norm.bias))


def _feed_forward(block: FeedForward, x: Balls, watch: Watch) -> Balls:
    y = x
    function, slope = activation(block.activation)
    for position, layer in enumerate(block.maps):
        watch()
        y = _plus_row(y @ exact(_numpy(layer.weight).T), _numpy(layer.bias))
        if position < len(block.maps) - 1:
            watch()
            y = y.mapped(function, slope)
    return x + y if block.skip else y


def _plus_row(x: Balls, row: np.ndarray) -> Balls:
    made: Balls = x + exact(np.broadcast_to(row, x.shape))
    return made


def _numpy(tensor: Any) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().double().numpy()
    return array


def ball_target(target: Any, X: list[list[Scalar]], watch: Watch = lambda: None) -> Scalar | None:
    """The first output of a Target on a sequence of ball tokens; None where the target is not of the grammar."""
    if not isinstance(target, Target) or not isinstance(target.outer, Polynomial):
        return None
    values: list[Scalar] = []
    for term in target.terms:
        found = _term(term, X, watch)
        if found is None:
            return None
        values.extend(found)
    return _polynomial(target.outer, values)[0]


def _term(term: Term, X: list[list[Scalar]], watch: Watch) -> list[Scalar] | None:
    if isinstance(term, PositionSum):
        return [sum((X[p][i] for p in term.positions), start=0 * X[0][0]) for i in range(term.dim)]
    if isinstance(term, KthLargest):
        scores = [sum((float(a) * x for a, x in zip(term.direction, token, strict=True)), 0 * token[0]) for token in X]
        lowers = sorted((s.lower() for s in scores), reverse=True)
        uppers = sorted((s.upper() for s in scores), reverse=True)
        return [lowers[term.k - 1].union(uppers[term.k - 1])]
    tree = tree_form(term.score) if isinstance(term, Extremum) else None
    if tree is None:
        return None
    assert isinstance(term, Extremum)
    choices = [positions.tolist() for positions in term.choices(len(X))]
    if math.prod(map(len, choices)) > MOST_TUPLES:
        return None
    rows = [row for row in product(*choices) if not term.distinct or len(set(row)) == len(row)]
    score = _tree_score(tree, X)
    balls = []
    for row in rows:
        watch()
        balls.append(score(row))
    pick = max if term.kind == "max" else min
    return [pick(b.lower() for b in balls).union(pick(b.upper() for b in balls))]


def _tree_score(score: TreeScore, X: list[list[Scalar]]) -> Callable[[tuple[int, ...]], Scalar]:
    """The score of a tuple of positions; the features of every token are computed once."""
    unary = [None if u is None else [_polynomial(u, token)[0] for token in X] for u in score.unary]
    edges = [
        (edge.v, [_polynomial(edge.left, x) for x in X], edge.w, [_polynomial(edge.right, x) for x in X])
        for edge in score.edges
    ]

    def of(row: tuple[int, ...]) -> Scalar:
        total = 0 * X[0][0]
        for values, t in zip(unary, row, strict=True):
            if values is not None:
                total += values[t]
        for v, left, w, right in edges:
            for a, b in zip(left[row[v]], right[row[w]], strict=True):
                total += a * b
        return total

    return of


def _polynomial(p: Polynomial, x: list[Scalar]) -> list[Scalar]:
    result = []
    for row in p.coefficients:
        total = 0 * x[0]
        for coefficient, exponent in zip(row, p.exponents, strict=True):
            if coefficient:
                monomial = 0 * x[0] + float(coefficient)
                for value, power in zip(x, exponent, strict=True):
                    for _ in range(int(power)):  # not **: it is nan on a ball with midpoint 0
                        monomial = monomial * value
                total = total + monomial
        result.append(total)
    return result
