"""The page about rank-1 heads names the tests that hold its corrections: each exists, and none is left out."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_every_correction_is_listed_with_its_test() -> None:
    page = (ROOT / "docs" / "rank_one.md").read_text(encoding="utf-8")
    table = page.split("## Corrections")[1].split("## Measured")[0]
    code = (ROOT / "tests" / "rank_one" / "test_rank_one_errata.py").read_text(encoding="utf-8")
    written = set(re.findall(r"^def (test_\w+)", code, re.MULTILINE))
    assert set(re.findall(r"`(test_\w+)`", table)) == written
    assert len(re.findall(r"^\| .* \|$", table, re.MULTILINE)) - 1 == 27  # the head is no correction
