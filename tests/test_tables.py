"""The tables in README and docs are the recorded numbers, to the letter."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_tables_agree_with_the_recorded_json() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "tables.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
