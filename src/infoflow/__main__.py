"""`python -m infoflow` is the command line without an install."""

from infoflow.cli import main

main()
