"""`make mutants` draws what it says: every kind of change, valid Python, in an order that edits elsewhere keep."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import _mutations  # noqa: E402

SOURCE = '''"""Words: 1 + 1."""
import math

def bound(a: "3", b=2.5, *, c=0):
    """Words too: 1 + 1."""
    if not a < b:
        raise ValueError(f"expected {a + 1}, got 1 + 1")
    terms = [t for t in (a, b) if t > 0]
    terms.append(math.sqrt(a) + "ä".count("a"))
    return max(terms) * c if a and b else -1
'''


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "benchmarks" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_kind_of_change_is_drawn_and_words_are_left_alone() -> None:
    found = list(_mutations.mutants("m.py", SOURCE))
    changes = {(m.operator, m.after) for m in found}
    assert {
        ("comparison", "if not (a <= b):"),
        ("dropped not", "if (a < b):"),
        ("negated condition", "if (not (not a < b)):"),
        ("removed raise", "pass"),
        ("negated condition", "terms = [t for t in (a, b) if (not (t > 0))]"),
        ("comparison", "terms = [t for t in (a, b) if (t < 0)]"),
        ("removed statement", "pass"),
        ("removed sqrt", 'terms.append((a) + "ä".count("a"))'),
        ("arithmetic", "terms.append((math.sqrt(a) - 'ä'.count('a')))"),
        ("dropped summand", "terms.append((math.sqrt(a)))"),
        ("dropped summand", "terms.append(('ä'.count('a')))"),
        ("max/min", "return min(terms) * c if a and b else -1"),
        ("arithmetic", "return (max(terms) / c) if a and b else -1"),
        ("and/or", "return max(terms) * c if (a or b) else -1"),
        ("constant", "return max(terms) * c if a and b else -2"),
    } <= changes
    for mutant in found:
        assert ast.dump(ast.parse(mutant.source)) != ast.dump(ast.parse(SOURCE))
        assert mutant.source.count("1 + 1") == SOURCE.count("1 + 1") - (mutant.operator == "removed raise")
        assert '"3"' in mutant.source
    assert len({m.key for m in found}) == len(found)


def test_an_edit_of_one_function_leaves_the_others_their_keys() -> None:
    other = "def new(x):\n    return x + 7\n\n\n"
    moved = SOURCE.replace("def bound", other + "def bound")
    before = {m.key for m in _mutations.mutants("m.py", SOURCE)}
    after = {m.key for m in _mutations.mutants("m.py", moved)}
    assert before < after


def test_the_code_that_proves_is_drawn_from_and_the_tests_that_call_it_come_first() -> None:
    mutants = script()
    order = mutants.drawn(0)
    assert [m.key for m in order] == [m.key for m in mutants.drawn(0)] != [m.key for m in mutants.drawn(1)]
    assert {"certificates/rules.py", "compiler/verification.py", "verdicts/bounds.py", "refutations/proof.py",
            "construct/rank_one/memorize.py"} <= {m.module for m in order}  # fmt: skip
    for pattern in mutants.PROVING:
        assert list(mutants.PACKAGE.glob(pattern)), f"{pattern} names no file"
    mutant = next(m for m in order if m.function)
    name = f"{mutant.module}:{mutant.function}"
    calls = {
        "a.py": {"tests": {"a::slow": {"seconds": 5.0, "calls": [name]}, "a::other": {"seconds": 0.1, "calls": []}}},
        "b.py": {"tests": {"b::fast": {"seconds": 1.0, "calls": [name, "x.py:f"]}}},
        "c.py": {"tests": {"c::none": {"seconds": 0.0, "calls": ["x.py:f"]}}},
    }
    assert mutants.concerned(mutant, calls, 10.0) == (["b::fast", "a::slow", "a::other"], 6.1, True)
    assert mutants.concerned(mutant, calls, 2.0) == (["b::fast", "a::other"], 1.1, False)
