"""Explicit networks as ground truth: the labels are right, and stay right when the network is disguised."""

import pytest
import torch

from infoflow import build, targets
from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig
from infoflow.probes import head_modes, record
from infoflow.probes.hidden import hide


@pytest.mark.parametrize(
    ("spelling", "T", "kind"),
    [("pairwise_max:D=2,d=4,seed=0", 32, "max"), ("star", 16, "max"), ("position_sum", 10, "position")],
)
def test_built_networks_plain_and_hidden(spelling, T, kind):
    target = targets.parse(spelling)
    network = build(target, T, 0.05)
    X = target.sample(32, T, 0, kind="torch").to(next(network.parameters()))
    truth = [[kind] * h for h in network.config.heads]
    assert {mode.label for mode in head_modes(record(network, X))} == {kind}
    same, _ = hide(network, X, truth, noise=0.0)
    torch.testing.assert_close(same(X), network(X), rtol=0, atol=1e-10)
    disguised, labels = hide(network, X, truth, distractors=4, noise=0.02)
    assert [mode.label for mode in head_modes(record(disguised, X))] == labels
    assert labels.count("global") == 2 * network.config.layers
    assert labels.count("mixed") == (network.config.layers if T >= 16 else 0)


def test_tied_keys_are_no_hardmax():
    """Both tokens of the best pair attain the minimum: the head that reads shares its mass between two keys."""
    target = targets.parse("min_pair")
    network = build(target, 16, 0.05)
    X = target.sample(24, 16, 0, kind="torch").to(next(network.parameters()))
    assert [mode.label for mode in head_modes(record(network, X))] == ["max", "top"]
    hidden, _ = hide(network, X, [["max"], ["top"]], distractors=0, noise=0.01)
    assert [mode.label for mode in head_modes(record(hidden, X))] == ["max", "top"]


def test_a_network_with_norms_is_refused():
    model = Transformer(TransformerConfig(dim=2, heads=(1,), head_dims=(2,), widths=(2,), layer_norm=True))
    with pytest.raises(InfoFlowError, match="rotated"):
        hide(model, torch.zeros(1, 2, 2), [["max"]])
