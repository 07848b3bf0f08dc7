"""Trees of Comparison (Definition 1): full binary trees that pass index sets from the leaves to the root.

Each leaf holds an ordered index set, repeats allowed. An internal node with function f keeps that one of its children's
sets I whose f(X[I]) is larger; on a tie the left one. The root's set is what the tree finds in X.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from infoflow.errors import InfoFlowError
from infoflow.targets.target import Target
from infoflow.targets.terms import Extremum, KthLargest, PositionSum, Term, ValueAtExtremum, WholeSequence

IndexSet = tuple[int, ...]
NodeFunction = Callable[[Float[np.ndarray, "k d"]], float]


@dataclass(frozen=True)
class TreeRun:
    """What a tree did with an input: the winner at every internal node, in the order of the merges, and at the root."""

    winners: tuple[IndexSet, ...]
    root: IndexSet


@dataclass(frozen=True, eq=False)
class ComparisonTree:
    """`merges[m]` joins two earlier nodes into node number len(leaves) + m; the last one is the root."""

    leaves: tuple[IndexSet, ...]
    merges: tuple[tuple[int, int], ...]
    functions: tuple[NodeFunction, ...]  # one for each merge

    def __post_init__(self) -> None:
        if not self.leaves or any(len(leaf) == 0 for leaf in self.leaves):
            raise InfoFlowError("expected at least one leaf and no empty index set in a tree of comparison.")
        if len(self.merges) != self.size - 1 or len(self.functions) != len(self.merges):
            raise InfoFlowError(f"expected {self.size - 1} merges, each with a function, for {self.size} leaves.")
        used = [child for pair in self.merges for child in pair]
        early = all(max(pair) < self.size + m for m, pair in enumerate(self.merges))
        if sorted(used) != list(range(2 * self.size - 2)) or not early:
            raise InfoFlowError("expected merges that use every node but the root once, and only after it was made.")

    @classmethod
    def balanced(cls, leaves: Sequence[IndexSet], function: NodeFunction) -> "ComparisonTree":
        """Neighbours are joined level by level (an odd last node waits), with one function at all nodes."""
        merges: list[tuple[int, int]] = []
        level, made = list(range(len(leaves))), len(leaves)
        while len(level) > 1:
            pairs = list(zip(level[::2], level[1::2], strict=False))
            merges.extend(pairs)
            level = [made + m for m in range(len(pairs))] + level[2 * len(pairs) :]
            made += len(pairs)
        return cls(tuple(leaves), tuple(merges), (function,) * len(merges))

    @property
    def size(self) -> int:
        """Number of leaves; a run makes size - 1 comparisons."""
        return len(self.leaves)

    @property
    def dimension(self) -> int:
        """Tokens of the largest leaf."""
        return max(len(leaf) for leaf in self.leaves)

    def run(self, X: Float[np.ndarray, "T d"]) -> TreeRun:
        """The winner of every comparison on the way, and the leaf that is left."""
        X = np.asarray(X, dtype=np.float64)
        highest = max(max(leaf) for leaf in self.leaves)
        if X.ndim != 2 or X.shape[0] <= highest or min(min(leaf) for leaf in self.leaves) < 0:
            raise InfoFlowError(f"expected one input (T, d) with T > {highest}, got shape {X.shape}.")
        kept = list(self.leaves)
        for (left, right), function in zip(self.merges, self.functions, strict=True):
            first = function(X[list(kept[left])]) >= function(X[list(kept[right])])
            kept.append(kept[left] if first else kept[right])
        return TreeRun(tuple(kept[self.size :]), kept[-1])


Leaves = Literal["ordered", "unordered_distinct"]


def comparison_trees(target: Target, T: int, leaves: Leaves = "ordered") -> tuple[ComparisonTree, ...]:
    """The trees behind `comparison(T)`: one per extremum or k-th largest value, one single leaf per fixed position.

    `ordered` is the paper's construction (B.1, D.1): leaves are the ordered tuples and nodes compare their scores.
    `unordered_distinct` has the sets of k different positions as leaves and compares their best arrangements.
    """
    target.check_length(T)
    return tuple(tree for term in target.terms for tree in _trees(term, T, leaves))


def covers(trees: Sequence[ComparisonTree], target: Target, X: Float[np.ndarray, "T d"]) -> bool:
    """Whether the root sets together contain the active index set of the target at X."""
    found = {position for tree in trees for position in tree.run(X).root}
    return set(np.flatnonzero(target.active(X)).tolist()) <= found


def _trees(term: Term, T: int, leaves: Leaves) -> list[ComparisonTree]:
    if isinstance(term, WholeSequence):
        raise InfoFlowError("expected extrema for trees of comparison, got a function that can only be called.")
    if isinstance(term, ValueAtExtremum):
        return [_with_neighbour(tree, term) for tree in _trees(term.extremum, T, leaves)]
    if isinstance(term, PositionSum):
        return [ComparisonTree(((position,),), (), ()) for position in term.positions]
    if isinstance(term, KthLargest):
        every = itertools.permutations if leaves == "ordered" else itertools.combinations
        direction = term.direction
        # The k-th largest is the largest over k-sets of the least value inside the set.
        return [
            ComparisonTree.balanced(list(every(range(T), term.k)), lambda tokens: float((tokens @ direction).min()))
        ]
    if leaves == "ordered":
        tuples = [tuple(t) for t in itertools.product(*(c.tolist() for c in term.choices(T)))]
        tuples = [t for t in tuples if not term.distinct or len(set(t)) == len(t)]
        return [ComparisonTree.balanced(tuples, _signed(term))]
    if term.sets is not None:
        raise InfoFlowError("expected an extremum over all positions for trees with unordered leaves.")
    if term.arity > T:
        raise InfoFlowError(f"expected T >= {term.arity} for leaves of {term.arity} different positions, got T={T}.")
    return [ComparisonTree.balanced(list(itertools.combinations(range(T), term.arity)), _best_arrangement(term))]


def _with_neighbour(tree: ComparisonTree, term: ValueAtExtremum) -> ComparisonTree:
    """The same comparisons; leaves hold what is read beside the winner, too."""
    if not term.shift:
        return tree
    leaves = [(*leaf, leaf[term.vertex] + term.shift) for leaf in tree.leaves]
    score = _signed(term.extremum)
    return ComparisonTree.balanced(leaves, lambda tokens: score(tokens[..., :-1, :]))


def _signed(term: Extremum) -> NodeFunction:
    sign = 1.0 if term.kind == "max" else -1.0
    return lambda tokens: sign * float(term.score(tokens))


def _best_arrangement(term: Extremum) -> NodeFunction:
    """The best score of tuples made of the tokens of the set, each as often as the term allows."""
    k = term.arity
    every = itertools.permutations(range(k)) if term.distinct else itertools.product(range(k), repeat=k)
    arrangements = np.array(list(every))
    sign = 1.0 if term.kind == "max" else -1.0
    return lambda tokens: float((sign * term.score(tokens[arrangements])).max())
