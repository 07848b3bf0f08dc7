"""`infoflow refute` on saved files and on a user's own model."""

import json

import pytest
import torch

from infoflow.cli import main
from infoflow.nn import Transformer, TransformerConfig
from infoflow.refutations.proof import LATE


def run(capsys, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture
def saved(tmp_path):
    model = Transformer(TransformerConfig(dim=3, heads=(1,), head_dims=(6,), widths=(8,)))
    model.initialise(torch.Generator().manual_seed(0))
    return str(model.save(tmp_path / "model.safetensors", target="min_pair:d=3", T=8))


def test_saved_model(saved, tmp_path, capsys):
    words = ("refute", saved, "--seconds", "3", "--json", "--out", str(tmp_path / "out"))
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["collision"] is True
    assert report["target"] == "min_pair:d=3"
    assert report["gap"] > 1
    assert "exact arithmetic on the stored weights" in report["speaks_of"]
    assert report["state_distance"] < 1e-10
    if report["proof"] != LATE:  # a busy machine leaves no time for it
        assert report["certified_error"] == pytest.approx(report["gap"] / 2, abs=1e-5)
    written = json.loads((tmp_path / "out" / "collision.json").read_text())
    assert written["Y"] == report["Y"]
    assert (tmp_path / "out" / "collision.svg").stat().st_size > 1000


def test_a_pair_and_a_certificate_of_one_network_agree(tmp_path, capsys):
    code, _, _ = run(capsys, "build", "min_pair:d=2", "-T", "4", "--eps", "0.5", "--out", str(tmp_path))
    assert code == 0
    path = str(next(tmp_path.glob("*.safetensors")))
    code, out, _ = run(capsys, "refute", path, "--seconds", "4", "--json", "--out", str(tmp_path / "out"))
    report = json.loads(out)
    assert code == 0
    assert "the certificate agrees" in report["agreement"]
    if report["collision"]:
        assert report["gap"] <= 2 * 0.2375
        assert f"{report['gap']:.4g}" in report["agreement"]


def test_a_pair_beyond_the_certificate_contradicts_it():
    from types import SimpleNamespace

    from infoflow.commands.refute import _agreement

    assert "CONTRADICTS" in _agreement(SimpleNamespace(gap=1.0, certified_error=0.4), 0.3)
    assert "agrees" in _agreement(SimpleNamespace(gap=0.5, certified_error=0.25), 0.3)
    assert _agreement(SimpleNamespace(gap=0.5, certified_error=0.25), None) is None


def test_no_collision_writes_nothing(tmp_path, capsys):
    model = Transformer(
        TransformerConfig(dim=1, heads=(1,), head_dims=(4,), widths=(8,), encoder="mlp", encoder_width=8)
    )
    model.initialise(torch.Generator().manual_seed(0), scale=3.0)
    path = str(model.save(tmp_path / "m.safetensors"))
    out_dir = tmp_path / "out"
    words = ("refute", path, "--target", "kth_largest:k=2", "-T", "3", "--seconds", "2", "--out", str(out_dir))
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert out.startswith("no certificate")
    assert not out_dir.exists()


def test_users_own_model(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "class Adapter:\n"
        "    dim, T = 2, 6\n"
        "    def __init__(self, net): self.net = net\n"
        "    def state(self, X): return self.net(X).mean(-2)\n"
        "    def target(self, X): return X[..., 0].amax(-1)\n"
        "def model():\n"
        "    torch.manual_seed(0)\n"
        "    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh())\n"
        "    return net, Adapter(net)\n"
        "def broken():\n    raise RuntimeError('no weights')\n"
        "def alone():\n    return torch.nn.Linear(1, 1)\n"
    )
    code, out, _ = run(capsys, "refute", f"{file}:model", "--seconds", "2", "--out", str(tmp_path / "out"))
    assert code == 0
    assert "numerical" in out
    for name, reason in (("broken", "no weights"), ("alone", "(module, adapter)"), ("absent", "absent")):
        code, _, err = run(capsys, "refute", f"{file}:{name}")
        assert code == 2
        assert reason in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("nowhere.safetensors",), "no file"),
        (("nowhere.py:f",), "is no file"),
    ],
)
def test_wrong_calls(words, reason, capsys):
    code, _, err = run(capsys, "refute", *words)
    assert code == 2
    assert reason in err


def test_length_is_asked_for(tmp_path, capsys):
    model = Transformer(TransformerConfig(dim=3, heads=(1,), head_dims=(6,), widths=(8,)))
    path = str(model.save(tmp_path / "m.safetensors"))
    code, _, err = run(capsys, "refute", path, "--target", "min_pair")
    assert code == 2
    assert "-T" in err
    code, _, err = run(capsys, "refute", path, "-T", "4")
    assert code == 2
    assert "target" in err


def test_a_file_cannot_name_code_to_run(tmp_path, capsys):
    model = Transformer(TransformerConfig(dim=3, heads=(1,), head_dims=(6,), widths=(8,)))
    path = str(model.save(tmp_path / "m.safetensors", target="evil.py:TARGET", T=4))
    code, _, err = run(capsys, "refute", path)
    assert code == 2
    assert "named target" in err


def test_hardmax_is_a_reserved_word(capsys):
    code, out, _ = run(capsys, "refute", "hardmax", "--d", "2", "--n", "4", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["collision"] is True
    assert report["largest_relative_difference"] < 1e-9
    code, out, _ = run(capsys, "refute", "hardmax", "--n", "3")
    assert code == 0
    assert "no collision" in out
