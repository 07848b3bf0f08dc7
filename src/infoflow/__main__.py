"""`python -m infoflow` is the command line without an install."""

from infoflow.apart import forget_folder

if __name__ == "__main__":  # worker processes import the caller's main module
    forget_folder()
    from infoflow.cli import main

    main()
