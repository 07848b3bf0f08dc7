"""The findings page: what a hand typed carries no measured number."""

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "findings.md"
GENERATED = re.compile(r"<!-- table \S+ -->\n.*?<!-- end -->", re.DOTALL)


def test_measured_numbers_stand_in_generated_blocks_only():
    """Decimals and percentages; 0.1 (a threshold) and 95% (the level of intervals) are settings, not measurements."""
    prose = GENERATED.sub("", PAGE.read_text(encoding="utf-8"))
    assert set(re.findall(r"\d+\.\d+|\d+%", prose)) <= {"0.1", "95%"}
    assert len(GENERATED.findall(PAGE.read_text(encoding="utf-8"))) >= 20
