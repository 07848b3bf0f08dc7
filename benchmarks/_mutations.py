"""The mutants of a source file: small changes of its syntax tree, each one a mistake that a proof could hide.

An edit replaces the text of one node, so that lines and comments around it stay. Words that only a person reads are
left alone: f-strings, docstrings, annotations, and what stands inside a `raise`.
"""

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate

COMPARED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.Lt, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
EXTREMA = {"max": "min", "amax": "amin", "maximum": "minimum", "argmax": "argmin"}
EXTREMA |= {small: large for large, small in EXTREMA.items()}
KEPT = {"append", "extend", "add", "update"}  # statements that only add to what is there
WORDS = (ast.JoinedStr, ast.Raise, ast.Assert)
# What has moved or been renamed since the mutants were drawn: its name then, so that draw and results stay theirs.
FORMER = {f"compiler/{name}.py": f"construct/{name}.py" for name in ("verification", "certification")}
FORMER |= {"book/statements/proposition_two.py": "refutations/proposition_two.py"}
MOVED = {  # functions by the file they are in, then the file they were in
    ("certificates/rules.py", "certificates/softmax.py"): ("lambert_w", "softmax_gap", "worst_scores"),
    ("certificates/attack.py", "certificates/promises.py"): ("steeper", "_numbers"),
    ("certificates/certificate.py", "construct/coverage.py"): ("expect_config", "expect_fields", "expect_float64"),
}
BEFORE = {(now, name): then for (now, then), names in MOVED.items() for name in names}
FORMER_NAMES = {"UnitBundle": "Fan", "bundle": "fan", "bundles": "fans", "bundle_error": "fan_error",
                "RankOneHead": "Head", "ProvedWidth": "Proved", "STEP_LENGTHS": "STEPS",
                "bundle_at_zero": "fan_at_zero", "displaced": "slip", "unwanted": "stray", "value_error": "stray",
                "embedding_error": "stray", "with_stored_errors": "with_strays", "WiredHead": "Head",
                "_embedding_error": "_embedding_stray"}  # fmt: skip
RENAMED = re.compile(rf"\b({'|'.join(FORMER_NAMES)})\b")
Edit = tuple[str, ast.AST, str]  # operator, the node, the text in its place


@dataclass(frozen=True)
class Mutant:
    """One change of one file; `key` names it by what it changes, so that edits elsewhere do not rename it."""

    module: str  # path below the package
    function: str  # qualified name, "" at the top of the module
    line: int
    operator: str
    before: str
    after: str
    number: int  # among equal changes of equal lines in the function
    source: str  # the whole file, mutated

    @property
    def key(self) -> str:
        changed = (self.function, self.operator, self.before, self.after)
        texts = (RENAMED.sub(lambda found: FORMER_NAMES[found.group()], text) for text in changed)
        home = BEFORE.get((self.module, self.function), FORMER.get(self.module, self.module))
        parts = (home, *texts, str(self.number))
        return sha256("\0".join(parts).encode()).hexdigest()[:12]


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a file, each one valid Python that differs from the file."""
    raw = source.encode()
    starts = list(accumulate(map(len, raw.splitlines(keepends=True)), initial=0))
    seen: Counter[tuple[str, ...]] = Counter()
    for function, (operator, node, text) in _edits(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        first, last = starts[node.lineno - 1], starts[node.end_lineno]
        changed = raw[:start] + text.encode() + raw[end:]
        if changed == raw:  # adding 1 to a huge constant
            continue
        before = raw[first:last].decode().strip()
        after = changed[first : last + len(changed) - len(raw)].decode().strip()
        seen[function, operator, before, after] += 1
        number = seen[function, operator, before, after]
        yield Mutant(module, function, node.lineno, operator, before, after, number, changed.decode())


def _edits(tree: ast.Module) -> Iterator[tuple[str, Edit]]:
    """Edits with the function they stand in."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, Edit]]:
        for edit in _of(node):
            yield function, edit
        if isinstance(node, WORDS):
            return
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            children: list[ast.AST] = [*node.body, *(node.args.defaults if isinstance(node, ast.FunctionDef) else [])]
            function = f"{function}.{node.name}".lstrip(".")
        elif isinstance(node, ast.AnnAssign):
            children = [node.value] if node.value else []
        else:
            children = list(ast.iter_child_nodes(node))
        for child in children:
            yield from walk(child, function)

    return walk(tree, "")


def _of(node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                changed = copy.deepcopy(node)
                changed.ops[i] = COMPARED[type(op)]()
                yield "comparison", node, f"({ast.unparse(changed)})"
        case ast.BinOp() if type(node.op) in ARITHMETIC and not _text(node.left) and not _text(node.right):
            changed = copy.deepcopy(node)
            changed.op = ARITHMETIC[type(node.op)]()
            yield "arithmetic", node, f"({ast.unparse(changed)})"
            if isinstance(node.op, ast.Add | ast.Sub):
                yield "dropped summand", node, f"({ast.unparse(node.left)})"
            if isinstance(node.op, ast.Add):
                yield "dropped summand", node, f"({ast.unparse(node.right)})"
        case ast.Constant() if type(node.value) in (int, float):
            yield "constant", node, repr(node.value + 1)
            if node.value not in (0, 1):  # 1 * 2 is 1 + 1
                yield "constant", node, repr(node.value * 2)
        case ast.BoolOp():
            other = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
            yield "and/or", node, f"({ast.unparse(other)})"
        case ast.UnaryOp(op=ast.Not()):
            yield "dropped not", node, f"({ast.unparse(node.operand)})"
        case ast.If() | ast.While() | ast.IfExp():
            yield "negated condition", node.test, f"(not ({ast.unparse(node.test)}))"
        case ast.comprehension():
            for test in node.ifs:
                yield "negated condition", test, f"(not ({ast.unparse(test)}))"
        case ast.Raise():
            yield "removed raise", node, "pass"
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) if name in KEPT:
            yield "removed statement", node, "pass"
        case ast.Call():
            yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[Edit]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in EXTREMA:
        changed = copy.deepcopy(node)
        changed.func = _renamed(node.func, EXTREMA[name])
        yield "max/min", node, ast.unparse(changed)
    if name == "sqrt" and len(node.args) <= 1:
        inside = node.args[0] if node.args else node.func.value  # type: ignore[attr-defined]
        yield "removed sqrt", node, f"({ast.unparse(inside)})"


def _renamed(function: ast.expr, name: str) -> ast.expr:
    return ast.Attribute(function.value, name) if isinstance(function, ast.Attribute) else ast.Name(name)


def _text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
