"""Which maxima heads follow: the construction of eq. (6) follows all, and misses one when the head for it is blind."""

from itertools import product

import pytest
import torch

from infoflow import build, targets
from infoflow.lab.papers.infoflow.followed import followed, scores

TARGET = targets.pairwise_max(D=3, d=3, seed=0)
T = 7
X = torch.from_numpy(TARGET.sample(200, T, seed=3)).double()


def test_the_construction_follows_every_maximum() -> None:
    first, second = followed(build(TARGET, T, 0.05).double(), TARGET, X)
    assert min(first) > 0.99
    assert min(second) > 0.99


@pytest.mark.parametrize("head", [0, 1, 2])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_head_that_sees_no_difference_leaves_one_maximum_unfollowed(layer: int, head: int) -> None:
    network = build(TARGET, T, 0.05).double()
    with torch.no_grad():
        network.attentions[layer].query[head] = 0.0  # all scores alike: it looks at the first token
    shares = followed(network, TARGET, X)[layer]
    assert sorted(share > 0.99 for share in shares) == [False, True, True]
    assert min(shares) < 0.6


def test_scores_are_those_of_the_target() -> None:
    """One by one; and the largest of each term's, summed, is the target itself."""
    for term, found in zip(TARGET.terms, scores(TARGET, X[:2]).unbind(1), strict=True):
        for b, s, t in product(range(2), range(T), range(T)):
            assert float(found[b, s, t]) == pytest.approx(float(term.score(X[b, [s, t]].numpy())))
    largest = scores(TARGET, X).flatten(2).amax(-1).sum(1)
    assert torch.allclose(largest, torch.from_numpy(TARGET(X.numpy())).flatten().double(), atol=1e-9)
