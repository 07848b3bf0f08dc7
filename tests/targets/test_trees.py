import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.errors import InfoFlowError
from infoflow.targets import NAMED, ComparisonTree, comparison_trees, covers, max_plus_min, parse

FIGURE_2 = np.array([[0.1], [0.3], [0.4], [0.2]])


def test_figure_2() -> None:
    largest, least = comparison_trees(max_plus_min(), 4)
    assert largest.leaves == least.leaves == ((0,), (1,), (2,), (3,))
    assert largest.run(FIGURE_2).winners == ((1,), (2,), (2,))  # {2} and {3}, then {3}
    assert largest.run(FIGURE_2).root == (2,)
    assert least.run(FIGURE_2).winners == ((0,), (3,), (0,))  # {1} and {4}, then {1}
    assert least.run(FIGURE_2).root == (0,)
    assert (largest.size, largest.dimension) == (4, 1)
    assert covers((largest, least), max_plus_min(), FIGURE_2)
    assert not covers((largest,), max_plus_min(), FIGURE_2)


@pytest.mark.parametrize("name", [*NAMED, "pairwise_max:D=2,d=2", "chain:length=3,d=2", "kth_largest:k=3"])
@pytest.mark.parametrize("leaves", ["ordered", "unordered_distinct"])
def test_the_papers_trees_have_the_stated_size_and_cover_the_active_set(name: str, leaves: str) -> None:
    F, T = parse(name), 5
    count = F.comparison(T)
    if count.required[leaves] is None:
        with pytest.raises(InfoFlowError, match="all positions"):
            comparison_trees(F, T, leaves)  # type: ignore[arg-type]
        return
    trees = comparison_trees(F, T, leaves)  # type: ignore[arg-type]
    assert sum(tree.size - 1 for tree in trees) == count.required[leaves]
    assert max(tree.dimension for tree in trees) == count.dimension
    for X in F.sample(10, T, seed=4):
        assert covers(trees, F, X)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_a_balanced_tree_finds_the_maximum_the_left_one_on_ties(values: list[int]) -> None:
    X = np.array(values, dtype=float)[:, None]
    tree = ComparisonTree.balanced([(t,) for t in range(len(values))], lambda tokens: float(tokens[0, 0]))
    assert X[tree.run(X).root[0], 0] == X.max()
    if len(values) in (1, 2, 4, 8):
        assert tree.run(X).root == (int(X[:, 0].argmax()),)


def test_each_node_may_have_its_own_function() -> None:
    up, down = (lambda x: float(x[0, 0])), (lambda x: -float(x[0, 0]))
    tree = ComparisonTree(((0,), (1,), (2,)), ((0, 1), (3, 2)), (up, down))
    assert tree.run(np.array([[1.0], [5.0], [3.0]])).winners == ((1,), (2,))


def test_what_is_no_tree() -> None:
    f = lambda x: 0.0  # noqa: E731
    for leaves, merges in [
        ((), ()),
        (((),), ()),
        (((0,), (1,)), ()),
        (((0,), (1,)), ((0, 0),)),
        (((0,), (1,)), ((0, 2),)),
    ]:
        with pytest.raises(InfoFlowError):
            ComparisonTree(leaves, merges, (f,) * len(merges))
    with pytest.raises(InfoFlowError, match="T > 3"):
        comparison_trees(max_plus_min(), 4)[0].run(FIGURE_2[:2])
    with pytest.raises(InfoFlowError, match="T >= 3"):
        comparison_trees(parse("triangle_center"), 2, "unordered_distinct")
