"""Errors over a table of token vectors: the bound against every sequence, for every target with one winner."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import infoflow as iflow
from infoflow import InfoFlowError, targets
from infoflow.commands.certify import command
from infoflow.proofs.vocabulary import certify_vocabulary
from infoflow.targets.score import TreeScore
from infoflow.targets.target import Extremum, Target

from .networks import random_network

TARGETS = [
    targets.sum_of_maxima(D=1, d=2, seed=4),
    targets.kth_largest(k=1, d=2),
    targets.d_retrieval(D=1, d=2),
    targets.value_at_argmax(d=3, margin=1e-3),
    Target((Extremum(TreeScore.linear([1.0, 0.5]), "min"),), targets.Polynomial.affine_map([[-2.0]], [0.3]), 2),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.spelling or "own")
@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_the_bound_against_every_sequence(target: Target, scale: float) -> None:
    V, T = 5, 3
    rng = np.random.default_rng(int(10 * scale))
    table = rng.uniform(*target.domain, size=(V, target.dim))
    network = random_network(7, d=target.dim, outputs=target.outputs, scale=scale)
    X = table[np.array(list(product(range(V), repeat=T)))]
    X = X[target.slack(X) >= 0] if target.condition else X
    with torch.no_grad():
        off = np.abs(network(torch.from_numpy(X)).numpy().reshape(len(X), -1) - target(X).reshape(len(X), -1))
    for seconds in (0.0, 20.0):
        certificate = certify_vocabulary(network, target, T, table, seconds)
        assert certificate.attacked is not None
        assert certificate.bound is not None
        assert off.max() == pytest.approx(certificate.attacked, abs=1e-12)
        assert off.max() <= certificate.bound
    if not target.condition:  # every group is split to the end: the bound is the truth
        assert certificate.bound == pytest.approx(off.max(), abs=1e-6 * (1 + off.max()))


def test_long_sequences_are_bounded_without_listing_them() -> None:
    target, network = targets.sum_of_maxima(D=1, d=2), random_network(1)
    table = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    certificate = iflow.certify(network, target, 40, seconds=2.0, vocabulary=table)
    assert certificate.bound is not None
    assert certificate.attacked is not None
    assert certificate.attacked <= certificate.bound
    assert certificate.bound <= iflow.certify(network, target, 40, seconds=2.0).bound * 1.2
    assert "30^40" in str(certificate.claim)


def test_what_has_no_winner_is_refused() -> None:
    network, table = random_network(0), [[0.0, 0.0], [1.0, 1.0]]
    for target in (targets.sum_of_maxima(D=2, d=2), targets.pairwise_max(D=1, d=2), targets.kth_largest(k=2, d=2)):
        with pytest.raises(InfoFlowError, match="expected"):
            certify_vocabulary(network, target, 3, table)
    tied = [[0.5, 0.0, 0.0], [0.5, 1.0, 1.0]]
    with pytest.raises(InfoFlowError, match="equal scores"):
        certify_vocabulary(random_network(0, d=3, outputs=2), targets.value_at_argmax(d=3), 3, tied)
    for wrong in ([], [[1.0]], [1.0, 2.0], "abc", [[float("nan"), 0.0]]):
        with pytest.raises(InfoFlowError, match="vocabulary"):
            certify_vocabulary(network, targets.sum_of_maxima(D=1, d=2), 3, wrong)


def test_the_command(tmp_path: Path) -> None:
    file, table = tmp_path / "net.safetensors", tmp_path / "table.json"
    random_network(3).save(file)
    table.write_text(json.dumps([[0.1 * i, 1.0 - 0.2 * i] for i in range(6)]))
    asked = [str(file), "--target", "sum_of_maxima:D=1,d=2", "-T", "5", "--vocabulary", str(table), "--json"]
    done = CliRunner().invoke(command, [*asked, "--seconds", "1"], standalone_mode=False)
    (found,) = json.loads(done.output)["files"]
    assert found["attacked"] <= found["bound"]
    assert "6^5" in found["claim"]["text"]
