"""`python -m infoflow` is the command line without an install."""

from infoflow.cli import main

if __name__ == "__main__":  # worker processes import the caller's main module
    main()
