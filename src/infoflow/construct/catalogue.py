"""One list of constructions: what `iflow.build(NAME, ...)` and `infoflow build NAME ...` know beside the targets.

    iflow.build("truncated_linear", a=-1, b=2)        infoflow build truncated_linear --a -1 --b 2

Both read the options below; `infoflow.construct.makers` has a function of each name that makes the network. The command
has a few options more, about what it measures and draws. Numpy alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from infoflow import arguments
from infoflow.certificates import Certified
from infoflow.errors import InfoFlowError, unknown
from infoflow.targets.named import target_of

OptionKind = Literal["integer", "number", "text", "yes or no", "numbers", "data", "file", "target"]
REQUIRED: Any = object()  # the default of an option that has none
FLAGS = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


@dataclass(frozen=True)
class Option:
    """One option: how its value is read, what it is when nobody says, and what it means."""

    name: str
    kind: OptionKind
    default: Any
    help: str

    def read(self, given: Any) -> Any:
        """The value in its plain type, from Python or from a word of the command line."""
        if given is None:
            return None
        if self.kind == "integer":
            return arguments.integer(self.name, _from_text(int, given), least=-arguments.LARGEST)
        if self.kind == "number":
            return arguments.number(self.name, _from_text(float, given))
        if self.kind == "numbers":
            parts = given.split(",") if isinstance(given, str) else given
            return [arguments.number(self.name, _from_text(float, part)) for part in parts]
        if self.kind == "yes or no":
            return given if isinstance(given, bool) else _flag(self.name, given)
        if self.kind == "data":  # a file, or in Python what it would hold
            return given if isinstance(given, Mapping) else arguments.path(self.name, given)
        if self.kind == "file":
            return arguments.path(self.name, given)
        return target_of(given) if self.kind == "target" else str(given)


@dataclass(frozen=True)
class Construction:
    """What it is, in a line; its options; a call that shows it; options that only the command has."""

    summary: str
    options: tuple[Option, ...]
    example: str
    command_options: tuple[Option, ...] = field(default=())

    def read(self, given: Mapping[str, Any], command: bool = False) -> dict[str, Any]:
        """Every option by name: what is given, checked, and the defaults."""
        known = {option.name: option for option in (*self.options, *(self.command_options if command else ()))}
        for name in given:
            if name not in known:
                raise unknown("option", f"--{name}" if command else name, [f"--{n}" if command else n for n in known])
        values = {}
        for name, option in known.items():
            value = given.get(name, option.default)
            if value is REQUIRED:
                raise InfoFlowError(f"expected option --{name} ({option.help}), got none; add --{name} VALUE.")
            values[name] = option.read(value)
        return values


def make(name: str, given: Mapping[str, Any], seed: int = 0) -> Certified:
    """The network of a construction, with its certificate; options that are not given have their defaults."""
    from infoflow.construct import makers

    made: Certified = getattr(makers, name)(CONSTRUCTIONS[name].read(given), arguments.seed(seed))
    return made


def _from_text(convert: type, given: Any) -> Any:
    try:
        return convert(given) if isinstance(given, str) else given
    except ValueError:
        return given  # the checker names it


def _flag(name: str, given: Any) -> bool:
    """`--lazy yes`; also true/false, on/off, 1/0."""
    if str(given).lower() not in FLAGS:
        raise InfoFlowError(f"expected {name} to be yes or no (true or false), got {arguments.shown(given)}.")
    return FLAGS[str(given).lower()]


FIGURES = Option("figures", "yes or no", True, "draw the figures")
HEAD_SIZE = Option("head_size", "integer", 1, "rows of the head's matrices")
EPS = Option("eps", "number", 0.1, "largest error allowed")

CONSTRUCTIONS: dict[str, Construction] = {
    "truncated_linear": Construction(
        "one softmax head computes a truncated linear map",
        (
            Option("a", "number", -1.0, "lower end of the range"),
            Option("b", "number", 1.0, "upper end of the range"),
            Option("n", "integer", 4, "tokens"),
            Option("w", "numbers", [1.0], "weights of w.x + t, separated by commas"),
            Option("t", "number", 0.0, "shift of w.x + t"),
            Option("eps", "number", None, "largest error allowed; default 0.01 without p and H"),
            Option("p", "integer", None, "anchors, in place of eps"),
            Option("H", "integer", None, "heads, each with n - 2 anchors, in place of eps and p"),
            Option("eps0", "number", 0.01, "softmax error allowed, with p or H"),
            Option("grid", "text", "paper", "where the anchors are: paper, closed or midpoint"),
        ),
        "infoflow build truncated_linear --a -1 --b 2 --n 4 --eps 0.01",
        (FIGURES,),
    ),
    "grid": Construction(
        "attention as a lookup on a grid",
        (
            Option("function", "text", REQUIRED, 'f of a d x n input, such as "sin(2*x11)+x11*x12"'),
            Option("d", "integer", 1, "rows of the input"),
            Option("n", "integer", 1, "columns of the input: tokens"),
            Option("g", "integer", 8, "cells a coordinate"),
            Option("variant", "text", "two-layer", "two-layer, one-layer-softmax or quadratic"),
            Option("B", "number", 1.0, "the inputs lie in [-B, B]"),
            Option("delta", "number", 0.05, "share of a cell that its shell takes"),
            Option("eps1", "number", 1e-3, "softmax weight allowed outside the cell"),
            Option("c", "number", 8.0, "sharpness of the quadratic variant"),
            Option("lipschitz", "number", None, "Lipschitz constant of f in the sup norm; default: from its text"),
            Option("lazy", "yes or no", False, "look values up in f, store no table"),
            Option("heads", "text", "factored", "factored (2dg heads) or paper (2d g^dn)"),
        ),
        'infoflow build grid --function "sin(2*x11)+x11*x12" --d 1 --n 2 --g 8 --variant quadratic',
        (FIGURES,),
    ),
    "icgd": Construction(
        "gradient descent in context",
        (
            Option("data", "data", REQUIRED, 'JSON: {"x": d rows of n numbers, "y": n numbers, "w0": .., "x_u": ..}'),
            Option("loss", "text", "squared", "squared, logistic, logcosh or huber"),
            Option("eta", "number", 0.5, "learning rate"),
            Option("steps", "integer", 200, "steps of descent"),
            Option("ridge", "number", 0.0, "weight of |w|^2 / 2"),
            Option("heads", "text", "soft", "gradient heads: soft, hard or relu"),
            Option("p", "integer", 256, "anchors of a head"),
            Option("tau", "number", None, "step of the difference quotient; default: the one with the least error"),
            Option("knots", "integer", 32, "pieces of the gradient's approximation"),
        ),
        "infoflow build icgd --data data.json --loss squared --eta 0.5 --steps 200 --ridge 0.1",
        (FIGURES,),
    ),
    "memorizer": Construction(
        "a rank-1 Transformer that memorises a data set",
        (
            Option("data", "data", None, 'JSON: {"X": N x n x d numbers, "Y": N x n or N x n x d integers}'),
            Option("conll", "file", None, "tagged text in CoNLL columns, in place of data"),
            Option("positions", "text", None, "position table (data): corollary or random; default: none"),
            Option("mask", "text", "none", "mask (data): none, causal, padding or causal+padding"),
            HEAD_SIZE,
            Option("dense", "integer", None, "places checked with the dense network; default: all (data), 4000 (text)"),
            Option("d", "integer", None, "numbers a word (text); default 16"),
            Option("dev", "file", None, "development text; default: the file beside the training text"),
        ),
        "infoflow build memorizer --data data.json --positions corollary",
    ),
    "context_map": Construction(
        "a contextual map",
        (
            Option("data", "data", REQUIRED, 'JSON: {"X": N x n x d numbers}'),
            Option("scale", "text", "auto", "auto, sufficient or paper"),
            Option("mask", "text", "none", "none, causal, padding or causal+padding"),
            HEAD_SIZE,
            Option("draws", "integer", None, "random directions tried; default: until one serves"),
            Option("merge", "yes or no", False, "give proportional multisets one id instead of refusing them"),
        ),
        "infoflow build context_map --data data.json --scale auto",
    ),
    "equivariant": Construction(
        "a permutation-equivariant approximation",
        (
            Option("function", "text", "mean_product", "mean_product, wave, or an expression such as x11*(x12+x13)"),
            Option("d", "integer", 1, "numbers a token"),
            Option("n", "integer", 2, "tokens"),
            Option("D", "integer", 16, "steps a coordinate"),
            Option("labels", "text", "centre", "f at the centre or the corner of its cell"),
        ),
        "infoflow build equivariant --function mean_product --d 1 --n 2 --D 16",
        (Option("points", "integer", 4000, "points at which the L2 error is measured"),),
    ),
    "codec": Construction(
        "the codec of Theorem 6",
        (
            Option("m", "integer", 2, "numbers that go in and come out"),
            Option("n", "integer", 1, "numbers between"),
            EPS,
            Option("activation", "text", "heaviside", "heaviside or tanh"),
            Option("p", "number", 2.0, "of the L_p norm (tanh)"),
            Option("slope", "number", None, "slope of the tanh units; default: what eps asks for"),
        ),
        "infoflow build codec --m 2 --n 1 --eps 0.1 --activation tanh",
    ),
    "memory_head": Construction(
        "one head that remembers every token, all work in the read-out",
        (
            Option("target", "target", "d_retrieval:D=2,d=1", "extrema of functions of single coordinates"),
            Option("T", "integer", 8, "sequence length"),
            EPS,
        ),
        "infoflow build memory_head --target d_retrieval:D=2,d=1 -T 8 --eps 0.1",
    ),
    "exponential_head": Construction(
        "D extrema through one uniform head, with unbounded weights",
        (
            Option("target", "target", "d_retrieval:D=4,d=4", "extrema of functions of single coordinates"),
            Option("T", "integer", 64, "sequence length"),
            EPS,
            Option("units", "integer", None, "tanh units a coordinate; default: what eps asks for"),
        ),
        "infoflow build exponential_head --target d_retrieval:D=4,d=4 -T 64 --eps 0.1",
    ),
}
