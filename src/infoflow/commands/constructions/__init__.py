"""Constructions that `infoflow build NAME` knows beside the targets; each module defines `run` and `text`."""
