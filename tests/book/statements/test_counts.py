import pytest

from infoflow.book.statements.counts import Counts, claimed, counted, formula, head_formula
from infoflow.construct.softmax_attention.expression import parse
from infoflow.construct.softmax_attention.grid import grid_approximator
from infoflow.errors import InfoFlowError


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize(("d", "n", "g"), [(1, 2, 3), (2, 1, 4), (2, 2, 2)])
def test_the_object_and_the_formula(paper, d, n, g):
    net = grid_approximator(parse("x11", d, n), d, n, g, paper_heads=paper)
    built, by_formula = counted(net), formula(d, n, g, net.p, paper)
    assert (built.heads, built.dense) == (by_formula.heads, by_formula.dense)
    assert built.nonzero <= by_formula.nonzero
    if g % 2:  # no bias (1 -+ g v/B)/delta vanishes on an odd grid
        assert built.nonzero == by_formula.nonzero
    expected = head_formula(d, n, g, 1)
    assert net.heads == {"built": expected["paper" if paper else "factored"], **expected}


def test_the_papers_parameter_count_is_wrong():
    """d = n = 2, g = 3, p = 81 as stated: 2135484 dense entries and 3240 non-zeros, against a claim of 26260."""
    net = grid_approximator(parse("x11", 2, 2), 2, 2, 3, paper_heads=True, p=81)
    assert counted(net) == Counts(324, 2_135_484, 3240)
    assert formula(2, 2, 3, 81, True) == Counts(324, 2_135_484, 3240)
    assert claimed(2, 2, 3) == 26_260


def test_the_quadratic_variant_has_no_heads():
    with pytest.raises(InfoFlowError, match="quadratic"):
        counted(grid_approximator(parse("x11", 1, 1), 1, 1, 4, "quadratic"))
