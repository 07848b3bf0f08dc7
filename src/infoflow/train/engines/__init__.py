"""Where groups of runs are trained: in this process (`local`), or on a Ray cluster (`ray`)."""
