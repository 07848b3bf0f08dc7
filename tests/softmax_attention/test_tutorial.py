"""The tutorial is run as a reader runs it."""

import os
import subprocess
import sys
from pathlib import Path

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "softmax_attention.py"


def test_the_tutorial_runs():
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(TUTORIAL)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for line in ("1. p = 600", "2. H = 32", "4. two-layer: 33 heads (paper: 513)", "5. 7 heads a step"):
        assert line in done.stdout
