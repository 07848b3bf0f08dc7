"""The findings page: what a hand typed carries no measured number."""

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "findings.md"
GENERATED = re.compile(r"<!-- table \S+ -->\n.*?<!-- end -->|<!--= .*?<!--/-->", re.DOTALL)


def test_measured_numbers_stand_in_generated_blocks_only():
    """Decimals and percentages; 0.01 and 0.1 (thresholds) and 95% (the level of intervals) are settings."""
    prose = GENERATED.sub("", PAGE.read_text(encoding="utf-8"))
    assert set(re.findall(r"\d+\.\d+|\d+%", prose)) <= {"0.01", "0.1", "95%"}
    assert len(GENERATED.findall(PAGE.read_text(encoding="utf-8"))) >= 60


def test_no_line_begins_with_a_value():
    """A comment at the start of a line would end the paragraph: Markdown reads it as a block of HTML."""
    assert not re.search(r"^\s*<!--=", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
