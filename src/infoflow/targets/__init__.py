"""What is asked of a Transformer: targets, their values, winning tuples, active index sets and comparison counts.

A target is an outer map over extrema of scores. A new one takes four lines:

    from infoflow.targets import Extremum, Target, TreeScore

    agreement = Extremum(TreeScore.bilinear([[1, 0], [0, -1]]), kind="max")  # over pairs of tokens
    lowest = Extremum(TreeScore.linear([0, 1]), kind="min")  # over single tokens
    F = Target.sum(agreement, lowest)

`F(X)` takes (..., T, d) as numpy or torch. Saved in `mine.py`, it is `mine.py:F` on the command line: it can be
predicted, built, certified and trained (docs/own_target.md).
"""

from infoflow.targets.comparison import Comparison
from infoflow.targets.named import (
    NAMED,
    Named,
    after_match,
    chain,
    closest_pair,
    d_retrieval,
    function,
    kth_largest,
    max_plus_min,
    min_pair,
    pairwise_max,
    parse,
    position_sum,
    recall,
    star,
    sum_of_maxima,
    triangle_center,
    value_at_argmax,
)
from infoflow.targets.polynomial import Polynomial
from infoflow.targets.score import (
    CallableScore,
    Edge,
    NormOfSum,
    Score,
    TreeScore,
    factor,
    lipschitz,
    score_bound,
    score_range,
    tree_form,
)
from infoflow.targets.target import OuterNetwork, Target
from infoflow.targets.terms import Extremum, KthLargest, PositionSum, Term, ValueAtExtremum, WholeSequence
from infoflow.targets.trees import ComparisonTree, comparison_trees, covers

__all__ = [
    "NAMED",
    "CallableScore",
    "Comparison",
    "ComparisonTree",
    "Edge",
    "Extremum",
    "KthLargest",
    "Named",
    "NormOfSum",
    "OuterNetwork",
    "Polynomial",
    "PositionSum",
    "Score",
    "Target",
    "Term",
    "TreeScore",
    "ValueAtExtremum",
    "WholeSequence",
    "after_match",
    "chain",
    "closest_pair",
    "comparison_trees",
    "covers",
    "d_retrieval",
    "factor",
    "function",
    "kth_largest",
    "lipschitz",
    "max_plus_min",
    "min_pair",
    "pairwise_max",
    "parse",
    "position_sum",
    "recall",
    "score_bound",
    "score_range",
    "star",
    "sum_of_maxima",
    "tree_form",
    "triangle_center",
    "value_at_argmax",
]
