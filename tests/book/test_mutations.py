"""A check can fail: each notices a sign, a constant or a weight that is changed in what it checks."""

import inspect
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutations import MUTATIONS

from infoflow.book import ENTRIES
from infoflow.book.registry import check_of

CASES = [(id, parameter, mutation) for id, cases in MUTATIONS.items() for parameter, mutation in cases]


def test_every_check_has_a_mutation() -> None:
    assert set(MUTATIONS) == {id for id, entry in ENTRIES.items() if entry.executable}


@pytest.mark.parametrize(("id", "parameter", "mutation"), CASES, ids=[f"{id}-{name}" for id, name, _ in CASES])
def test_a_small_change_is_noticed(id, parameter, mutation) -> None:
    check = check_of(id)
    construction = inspect.signature(check).parameters[parameter].default
    findings = check("quick", **{parameter: mutation(construction)})
    assert not all(finding.passed for finding in findings), [str(finding) for finding in findings]
    assert all(math.isfinite(f.seen) or not f.passed for f in findings)
