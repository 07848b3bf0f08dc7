"""What `infoflow build NAME` says of a construction: each module has `run`, which makes and measures, and `text`."""
