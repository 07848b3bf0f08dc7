"""A small language for functions of a d x n input, with derivatives and interval bounds. No text is run as code.

    expression = term (("+" | "-") term)*         term  = factor (("*" | "/") factor)*
    factor     = ("-" | "+") factor | power       power = atom (("^" | "**") ["-"] digits)?
    atom       = number | pi | x11 | x1_12 | name "(" expression ")" | "(" expression ")"

x11 is row 1, column 1; x1_12 serves indices above 9. Functions: sin cos exp log sqrt tanh abs.
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from infoflow.construct.softmax_attention import intervals
from infoflow.construct.softmax_attention.intervals import Interval
from infoflow.errors import InfoFlowError, unknown

TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z]\w*)|(\*\*|[-+*/^()]))")
DEEPEST = 60  # brackets: the parser calls itself a few times a bracket, and Python allows 1,000 calls
LONGEST = 1000  # characters: more than a person types


@dataclass(frozen=True)
class Formula:
    """`kind`: number, variable, one of + * ^, or a function; a - b is a + (-1) b.

    A chain a + b + c, or a * b * c, is one node with all its operands, worked off from the left: a tree is never deeper
    than brackets and signs are nested, however long the chain is.
    """

    kind: str
    children: tuple["Formula", ...] = ()
    value: float = 0.0  # of a number; exponent of ^
    place: tuple[int, int] = (0, 0)  # of a variable, 0-based


def number(value: float) -> Formula:
    """The expression that is a number."""
    return Formula("number", value=value)


def add(left: Formula, right: Formula) -> Formula:
    """left + right, with numbers added and zeros left out."""
    if left.kind == right.kind == "number":
        return number(left.value + right.value)
    if left == number(0):
        return right
    if right == number(0):
        return left
    return _chain("+", left, right)


def multiply(left: Formula, right: Formula) -> Formula:
    """left times right, with zeros and ones taken out."""
    if number(0) in (left, right):
        return number(0)
    if left == number(1):
        return right
    if right == number(1):
        return left
    return _chain("*", left, right)


def _chain(kind: str, left: Formula, right: Formula) -> Formula:
    """left (kind) right; a chain that ends on the left goes on, in the same order of operations."""
    return Formula(kind, (*(left.children if left.kind == kind else (left,)), right))


def power(base: Formula, exponent: int) -> Formula:
    """base ^ exponent for a whole exponent."""
    if exponent == 0:
        return number(1)
    return base if exponent == 1 else Formula("^", (base,), value=exponent)


# name -> (numpy function, interval function, derivative as a tree of the argument)
FUNCTIONS: dict[str, tuple[Callable[..., ndarray], Callable[[Interval], Interval], Callable[[Formula], Formula]]] = {
    "sin": (np.sin, intervals.sin, lambda x: Formula("cos", (x,))),
    "cos": (np.cos, intervals.cos, lambda x: multiply(number(-1), Formula("sin", (x,)))),
    "exp": (np.exp, intervals.exp, lambda x: Formula("exp", (x,))),
    "log": (np.log, intervals.log, lambda x: power(x, -1)),
    "sqrt": (np.sqrt, intervals.sqrt, lambda x: multiply(number(0.5), power(Formula("sqrt", (x,)), -1))),
    "tanh": (
        np.tanh,
        intervals.tanh,
        lambda x: add(number(1), multiply(number(-1), power(Formula("tanh", (x,)), 2))),
    ),
    "abs": (np.abs, intervals.absolute, lambda x: Formula("sign", (x,))),
}
_SIGN = (np.sign, intervals.sign)


def derivative(node: Formula, place: tuple[int, int]) -> Formula:
    """The partial derivative as a tree; abs has derivative sign (its interval covers the kink: abs is Lipschitz)."""
    if node.kind in ("number", "sign"):
        return number(0)
    if node.kind == "variable":
        return number(1.0 if node.place == place else 0.0)
    inner = [derivative(child, place) for child in node.children]
    if node.kind == "+":
        return reduce(add, inner)
    if node.kind == "*":
        return _product_rule(node.children, inner)[1]
    if node.kind == "^":
        outer = multiply(number(node.value), power(node.children[0], int(node.value) - 1))
        return multiply(outer, inner[0])
    return multiply(FUNCTIONS[node.kind][2](node.children[0]), inner[0])


def _product_rule(factors: Sequence[Formula], slopes: Sequence[Formula]) -> tuple[Formula, Formula]:
    """The product and its derivative: of both halves, so that k factors make a tree of k log k nodes, not k^2."""
    if len(factors) == 1:
        return factors[0], slopes[0]
    middle = len(factors) // 2
    left, left_slope = _product_rule(factors[:middle], slopes[:middle])
    right, right_slope = _product_rule(factors[middle:], slopes[middle:])
    return multiply(left, right), add(multiply(left_slope, right), multiply(left, right_slope))


def evaluate(node: Formula, X: Float[ndarray, "... d n"]) -> Float[ndarray, " ..."]:
    """The value of an expression at every input."""
    if node.kind == "number":
        return np.full(X.shape[:-2], node.value)
    if node.kind == "variable":
        return X[(..., *node.place)]
    values = [evaluate(child, X) for child in node.children]
    if node.kind == "+":
        return reduce(operator.add, values)
    if node.kind == "*":
        return reduce(operator.mul, values)
    if node.kind == "^":
        return values[0] ** node.value
    return (_SIGN if node.kind == "sign" else FUNCTIONS[node.kind])[0](values[0])


def enclose(node: Formula, box: Callable[[tuple[int, int]], Interval], shape: tuple[int, ...]) -> Interval:
    """An interval that holds every value of the expression on each box."""
    if node.kind == "number":
        return Interval(np.full(shape, node.value), np.full(shape, node.value))
    if node.kind == "variable":
        return box(node.place)
    values = [enclose(child, box, shape) for child in node.children]
    if node.kind == "+":
        return reduce(operator.add, values)
    if node.kind == "*":
        return _enclose_product(node.children, values)
    if node.kind == "^":
        return intervals.integer_power(values[0], int(node.value))
    return (_SIGN if node.kind == "sign" else FUNCTIONS[node.kind])[1](values[0])


def _enclose_product(factors: Sequence[Formula], values: Sequence[Interval]) -> Interval:
    """From the left; what is multiplied by itself is a square, whose interval is smaller than that of a product."""
    found, before = values[0], factors[0]
    for factor, value in zip(factors[1:], values[1:], strict=True):
        found = intervals.integer_power(found, 2) if factor == before else found * value
        before = _chain("*", before, factor)
    return found


@dataclass(frozen=True)
class Expression:
    """A function R^{d x n} -> R with exact enclosures of its values and gradients on boxes."""

    text: str
    tree: Formula
    d: int
    n: int

    def __call__(self, X: Float[ndarray, "... d n"]) -> Float[ndarray, " ..."]:
        with np.errstate(all="ignore"):
            return evaluate(self.tree, X)

    @cached_property
    def gradient(self) -> dict[tuple[int, int], Formula]:
        """Its partial derivatives by the place of the variable."""
        places = [(i, j) for i in range(self.d) for j in range(self.n)]
        return {place: derivative(self.tree, place) for place in places}

    def partial_bounds(self, B: float, boxes: int = 4096) -> Float[ndarray, "d n"]:
        """sup |df/dx_ij| over [-B, B]^{d x n}, by intervals on a subdivision; inf where nothing finite is proved."""
        cover, shape = self._cover(B, boxes)
        bounds = np.zeros((self.d, self.n))
        for place, tree in self.gradient.items():
            with np.errstate(all="ignore"):
                value = enclose(tree, cover, shape)
            worst = np.maximum(np.abs(value.low), np.abs(value.high)).max()
            bounds[place] = worst if np.isfinite(worst) else np.inf
        return bounds

    def range_bounds(self, B: float, boxes: int = 4096) -> tuple[float, float]:
        """Numbers below and above all values on [-B, B]^(d x n), by intervals on that many boxes."""
        cover, shape = self._cover(B, boxes)
        with np.errstate(all="ignore"):
            value = enclose(self.tree, cover, shape)
        return float(value.low.min()), float(value.high.max())

    def _cover(self, B: float, boxes: int) -> tuple[Callable[[tuple[int, int]], Interval], tuple[int, ...]]:
        """Split every used coordinate into equal pieces, as many as `boxes` allows; pieces overlap by one float."""
        used = sorted(variables(self.tree))
        pieces = max(1, int(boxes ** (1 / max(1, len(used))) + 1e-9))
        edges = np.linspace(-B, B, pieces + 1)
        shape = (pieces,) * len(used)

        def box(place: tuple[int, int]) -> Interval:
            axis = [1] * len(used)
            axis[used.index(place)] = pieces
            low, high = edges[:-1].reshape(axis), edges[1:].reshape(axis)
            return Interval(np.broadcast_to(low, shape), np.broadcast_to(high, shape))

        return box, shape


def parse(text: str, d: int, n: int) -> Expression:
    """Refuses everything outside the grammar with the position of the first offence."""
    if len(text) > LONGEST:
        raise InfoFlowError(f"expected an expression of at most {LONGEST} characters, got {len(text)}; shorten it.")
    parser = _Parser(text, d, n)
    tree = parser.expression(0)
    if parser.kind != "end":
        raise parser.error("an operator or the end")
    return Expression(text, tree, d, n)


class _Parser:
    def __init__(self, text: str, d: int, n: int) -> None:
        self.text, self.d, self.n = text, d, n
        self.position = 0
        self.advance()

    def advance(self) -> None:
        self.start = self.position
        rest = self.text[self.position :]
        self.start += len(rest) - len(rest.lstrip())
        if not rest.strip():
            self.kind, self.word = "end", ""
            return
        match = TOKEN.match(self.text, self.position)
        if match is None:
            raise self.error("a number, a name or an operator")
        self.position = match.end()
        self.kind = ("number", "name", "operator")[(match.lastindex or 1) - 1]
        self.word = match.group(match.lastindex or 0)

    def error(self, expected: str) -> InfoFlowError:
        rest = self.text[self.start :].strip()
        found = repr(rest[0]) if rest else "the end"
        return InfoFlowError(f"expected {expected} at character {self.start + 1} of {self.text!r}, got {found}.")

    def take(self, word: str) -> bool:
        if self.kind == "operator" and self.word == word:
            self.advance()
            return True
        return False

    def expression(self, depth: int) -> Formula:
        if depth > DEEPEST:
            raise InfoFlowError(f"expected at most {DEEPEST} nested brackets, got more; simplify the expression.")
        tree = self.term(depth)
        while self.kind == "operator" and self.word in "+-":
            sign = number(1.0 if self.word == "+" else -1.0)
            self.advance()
            tree = add(tree, multiply(sign, self.term(depth)))
        return tree

    def term(self, depth: int) -> Formula:
        tree = self.factor(depth)
        while self.kind == "operator" and self.word in "*/":
            divide = self.word == "/"
            self.advance()
            right = self.factor(depth)
            tree = multiply(tree, power(right, -1) if divide else right)
        return tree

    def factor(self, depth: int) -> Formula:
        if depth > DEEPEST:
            raise InfoFlowError(f"expected at most {DEEPEST} nested signs, got more; simplify the expression.")
        if self.take("-"):
            return multiply(number(-1), self.factor(depth + 1))
        if self.take("+"):
            return self.factor(depth + 1)
        base = self.atom(depth)
        if self.take("^") or self.take("**"):
            sign = -1 if self.take("-") else 1
            if self.kind != "number" or not self.word.isdigit() or int(self.word) > 100:
                raise self.error("a whole exponent of at most 100")
            exponent = sign * int(self.word)
            self.advance()
            return power(base, exponent)
        return base

    def atom(self, depth: int) -> Formula:
        kind, word = self.kind, self.word
        if kind == "number":
            self.advance()
            return number(float(word))
        if kind == "name":
            self.advance()
            if word == "pi":
                return number(float(np.pi))
            if word in FUNCTIONS:
                return Formula(word, (self.bracket(depth),))
            return self.variable(word)
        if self.word == "(":
            return self.bracket(depth)
        raise self.error("a number, a variable, a function or a bracket")

    def bracket(self, depth: int) -> Formula:
        if not self.take("("):
            raise self.error("'('")
        tree = self.expression(depth + 1)
        if not self.take(")"):
            raise self.error("')'")
        return tree

    def variable(self, word: str) -> Formula:
        match = re.fullmatch(r"x(?:(\d)(\d)|(\d+)_(\d+))", word)
        if match is None:
            raise unknown("name", word, [*FUNCTIONS, "pi", "x11"])
        i, j = (int(group) for group in match.groups() if group is not None)
        if not (1 <= i <= self.d and 1 <= j <= self.n):
            raise InfoFlowError(
                f"expected a variable of a {self.d} x {self.n} input, got {word} (row {i}, column {j}); "
                "raise --d or --n."
            )
        return Formula("variable", place=(i - 1, j - 1))


def variables(node: Formula) -> set[tuple[int, int]]:
    """The places of the variables that stand in an expression."""
    if node.kind == "variable":
        return {node.place}
    return set().union(*(variables(child) for child in node.children)) if node.children else set()
