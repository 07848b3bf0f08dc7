"""`certify` of a trained network from Python and from the command line, as fit leaves it."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import infoflow as iflow
from infoflow.cli import main
from infoflow.commands.certify import command
from infoflow.commands.refute import command as refute
from infoflow.train.task import Regression


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store")
    recipe = iflow.Recipe(samples=512, validation=64, epochs=10)
    iflow.fit("sum_of_maxima:D=1,d=1", "heads=1 embed=4", T=4, seeds=1, recipe=recipe, store=store, keep_weights=True)
    (path,) = (store / "weights").glob("*.safetensors")
    return path


def test_a_trained_network_is_certified(trained: Path) -> None:
    certificate = iflow.certify(iflow.load(trained), seconds=2.0)
    assert certificate.holds
    assert certificate.attacked is not None
    assert certificate.bound is not None
    assert 0 < certificate.attacked <= certificate.bound <= 1.1 * certificate.attacked
    assert {"network - target", "target - network", "rounding"} == set(certificate.parts)
    assert certificate.claim.limit is not None
    assert not iflow.certify(iflow.load(trained), eps=0.5 * certificate.bound, seconds=1.0).holds
    longer = iflow.certify(iflow.load(trained), T=1024, seconds=2.0)  # one network, any length
    assert longer.holds
    assert "1024 tokens" in str(longer.claim)


def test_the_command(trained: Path) -> None:
    done = CliRunner().invoke(command, [str(trained), "--seconds", "1", "--json"], standalone_mode=False)
    (found,) = json.loads(done.output)["files"]
    assert {"claim", "bound", "attacked", "parts", "seconds", "worst"} <= found.keys()
    assert found["attacked"] <= found["bound"]
    assert len(found["worst"]) == 4
    text = CliRunner().invoke(command, [str(trained), "--seconds", "1"], standalone_mode=False)
    assert text.return_value == 0
    assert "attacked at" in text.output


def test_the_report_shows_both_ends_and_the_worst_input(trained: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(trained), "--seconds", "1", "--out", str(tmp_path)], standalone_mode=False)
    assert f"wrote {tmp_path / 'certificate.json'}" in done.output
    (found,) = json.loads((tmp_path / "certificate.json").read_text())["files"]
    assert len(found["worst"]) == 4
    picture = (tmp_path / f"{trained.stem}.svg").read_text()
    assert picture.startswith("<?xml")


def test_refute_tells_the_twin_bound(trained: Path, tmp_path: Path) -> None:
    """A pair says that some error is at least half its gap; certify's bound of the same network stands above."""
    asked = [str(trained), "-T", "8", "--seconds", "4", "--out", str(tmp_path), "--json"]
    found = json.loads(CliRunner().invoke(refute, asked, standalone_mode=False).output)
    assert "the certificate agrees" in found["agreement"]


def test_a_target_without_inequalities_is_split_or_has_no_bound(trained: Path) -> None:
    """Four tokens of one number can be split; of 40 the attack alone is told, with the reasons."""
    asked = [str(trained), "--target", "pairwise_max:D=1,d=1", "--seconds", "0.5", "--json"]
    done = CliRunner().invoke(command, asked, standalone_mode=False)
    (found,) = json.loads(done.output)["files"]
    assert found["attacked"] <= found["bound"]
    assert "splitting" in found["parts"]
    done = CliRunner().invoke(command, [*asked, "-T", "40"], standalone_mode=False)
    (found,) = json.loads(done.output)["files"]
    assert done.return_value == 1
    assert found["bound"] is None
    assert found["attacked"] > 0
    assert "compares 2 tokens" in found["reasons"][0]


OWN = """
import torch
from torch import nn
import infoflow as iflow

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.cls = nn.Linear(2, 4), nn.Parameter(torch.randn(4))
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 1)

    def forward(self, X):
        e, cls = self.tokens(X), self.cls.expand(len(X), 1, -1)
        read = cls + self.attention(cls, e, e, need_weights=False)[0]
        return self.last(torch.tanh(self.first(read)))[:, 0, 0]

def described(**changed):
    torch.manual_seed(0)
    m = Mine()
    for bias in (m.attention.in_proj_bias, m.attention.out_proj.bias):
        nn.init.normal_(bias)
    parts = dict(tokens=m.tokens, cls=m.cls, attention=m.attention, first=m.first, last=m.last, activation="tanh")
    return iflow.OneLayer(m, **{**parts, **changed})

def right():
    return described()

def wrong():
    return described(residual=False)

def no_adapter():
    return Mine()
"""


def test_a_module_of_the_users_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What its adapter describes is certified, as a promise; what it does not describe is refused."""
    file = tmp_path / "own.py"
    file.write_text(OWN)
    asked = ["--target", "sum_of_maxima:D=2,d=2", "-T", "16", "--seconds", "1", "--json"]
    done = CliRunner().invoke(command, [f"{file}:right", *asked], standalone_mode=False)
    (found,) = json.loads(done.output)["files"]
    assert 0 < found["attacked"] <= found["bound"] <= 1.2 * found["attacked"]
    assert found["verdict"].startswith("holds if its adapter describes the module")
    assert found["measured"]["module - formula, where compared"] < 1e-12
    for name, word in (("wrong", "differs from that by"), ("no_adapter", "infoflow.OneLayer")):
        with pytest.raises(SystemExit) as ended:
            main(["certify", f"{file}:{name}", *asked])
        assert ended.value.code == 2
        assert word in capsys.readouterr().err


def test_certifiable_training_sees_ties_and_is_validated_as_before() -> None:
    """Half of what is trained on are ties and clusters in the box; what is validated on does not change."""
    task = Regression(iflow.targets.sum_of_maxima(D=1, d=2))
    plain, tied = (
        task.draw(8, iflow.Recipe(samples=400, validation=50, epochs=1, certifiable=flag), torch.device("cpu"))
        for flag in (False, True)
    )
    spread = [draw[0].std(1).amax(-1) for draw in (plain, tied)]
    assert int((spread[0] < 1e-6).sum()) == 0
    assert int((spread[1] < 1e-6).sum()) > 20
    assert float(tied[0][::2].abs().max()) <= 1.0  # in the box; the other half is as drawn before
    assert torch.equal(tied[0][1::2], plain[0][1::2])
    assert torch.equal(tied[2], plain[2])
    assert torch.allclose(tied[1][:, 0], task.target(tied[0].double()))
    with pytest.raises(iflow.InfoFlowError, match="certifiable"):
        iflow.fit("task:parity,length=4", "heads=1 embed=4", recipe=iflow.Recipe(epochs=1, certifiable=True))
