"""`certify` of a trained network from Python and from the command line, as fit leaves it."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import infoflow as iflow
from infoflow.cli import main
from infoflow.commands.certify import command
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


def test_a_target_without_inequalities_is_one_sentence(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["certify", str(trained), "--target", "pairwise_max:D=1,d=1"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "compares 2 tokens" in error
    assert len(error.strip().splitlines()) == 1


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
