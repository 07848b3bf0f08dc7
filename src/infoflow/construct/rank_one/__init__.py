"""One rank-1 head that knows its context: contextual maps, memorisation, universal approximation."""
