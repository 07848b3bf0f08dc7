"""The single heads as the command line builds them: saved, loaded, certified, refused when changed."""

import json

import numpy as np
import pytest
import torch

import infoflow as iflow
from infoflow.cli import main
from infoflow.commands.constructions import exponential_head, memory_head
from infoflow.construct.single_heads import memory_head as memory_head_of
from infoflow.construct.single_heads import single_head
from infoflow.errors import InfoFlowError
from infoflow.nn import files
from infoflow.targets import d_retrieval, min_pair

COMMANDS = {"memory_head": memory_head, "exponential_head": exponential_head}
OPTIONS = {"target": "d_retrieval:D=2,d=1", "T": "6", "eps": "0.2"}


@pytest.mark.parametrize("kind", COMMANDS)
def test_built_saved_and_certified_again(kind, tmp_path):
    report = COMMANDS[kind].run(dict(OPTIONS), tmp_path, 0)
    assert report["attacked"] <= report["bound"] <= 0.2
    assert str(report["path"]) in COMMANDS[kind].text(report)
    head = iflow.load(report["path"])
    X = d_retrieval(2, 1).sample(8, 6, seed=0, kind="torch").double()
    assert torch.equal(head(X), single_head(kind, d_retrieval(2, 1), 6, 0.2)(X))
    certificate = iflow.certify(head, seconds=0.01)
    assert certificate.holds
    assert certificate.attacked <= certificate.bound


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_changed_tensor_does_not_hold(kind, tmp_path):
    path = COMMANDS[kind].run(dict(OPTIONS), tmp_path, 0)["path"]
    _, tensors, header = files.read(path)
    name = next(iter(tensors))
    tensors[name].view(-1)[0] += 1.0
    files.write(path, kind, tensors, header)
    certificate = iflow.certify(iflow.load(path), seconds=0.01)
    assert not certificate.holds
    assert name in certificate.reasons[0]


def test_rounding_of_the_memory_is_within_its_allowance():
    """The stored layers in extended precision against float64: further apart than 0, nearer than allowed."""
    head = memory_head_of(d_retrieval(2, 2), 5, 0.05)
    X = np.random.default_rng(0).uniform(0, 1, (40, 5, 2))
    y = (X.astype(np.longdouble) / 5).reshape(40, -1)
    for number, (weight, bias) in enumerate(head.readout):
        y = y @ weight.numpy().astype(np.longdouble).T + bias.numpy()
        y = np.maximum(y, 0) if number < 4 else y
    off = float(np.abs(head(torch.from_numpy(X)).numpy() - y[:, 0]).max())
    assert 0 < off <= head.parts["rounding"] < 1e-6


@pytest.mark.parametrize("kind", COMMANDS)
def test_what_is_built_is_within_eps_at_every_eps(kind):
    """Also where eps divides the range exactly, so that nothing is left over for rounding by chance."""
    for eps in (1.0, 0.5, 0.25, 0.2, 0.1, 1 / 3, 0.05):
        made = single_head(kind, d_retrieval(2, 1), 4, eps)
        assert made.certificate.holds
        assert made.certificate.bound <= eps
    with pytest.raises(InfoFlowError):
        single_head(kind, d_retrieval(2, 1), 4, 1e-14)


def test_a_file_of_build_is_a_file_of_the_construction(tmp_path):
    built = iflow.build("d_retrieval:D=2,d=1", 4, 0.25, rule="memory_head", weight_bound=None)
    assert iflow.certify(iflow.load(built.save(tmp_path / "m.safetensors")), seconds=0.01).holds


@pytest.mark.parametrize("T", [10**5, 10**9, 10**15])
def test_a_length_the_file_does_not_have_takes_no_memory(T, tmp_path):
    for kind in COMMANDS:
        path = COMMANDS[kind].run(dict(OPTIONS), tmp_path, 0)["path"]
        _, tensors, header = files.read(path)
        files.write(path, kind, tensors, {**header, "T": T})
        if kind == "memory_head" or T > 10**6:
            with pytest.raises(InfoFlowError, match=r"columns|at most \d+ positions"):
                iflow.load(path)
        else:
            certificate = iflow.certify(iflow.load(path), seconds=0.01)
            assert not certificate.holds  # its temperature depends on T


def test_refusals(tmp_path, capsys):
    with pytest.raises(InfoFlowError, match="option"):
        memory_head.run({"leves": "3"}, tmp_path, 0)
    with pytest.raises(InfoFlowError):
        single_head("memory_head", min_pair(), 4, 0.1)
    for header in ({}, {"target": 3, "T": 4, "eps": 0.1}, {"target": "d_retrieval:D=2,d=1", "T": True, "eps": 0.1}):
        files.write(tmp_path / "bad.safetensors", "memory_head", {"x": torch.zeros(1)}, header)
        with pytest.raises(InfoFlowError, match="target, T and eps"):
            iflow.load(tmp_path / "bad.safetensors")
    with pytest.raises(SystemExit) as stop:
        main(["build", "exponential_head", "-T", "4", "--eps", "0.5", "--json", "--out", str(tmp_path)])
    assert not stop.value.code
    assert json.loads(capsys.readouterr().out)["construction"] == "exponential_head"
