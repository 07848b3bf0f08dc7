"""certify: attacks below bounds, balls, lower precisions, hostile headers, the two commands."""

import json
import shlex
from inspect import signature

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import infoflow as iflow
from infoflow import targets as it
from infoflow.certificates import Certificate, Claim
from infoflow.certificates import attack as attack_module
from infoflow.certificates.attack import Region, attack
from infoflow.cli import cli
from infoflow.compiler.certification import _shortened
from infoflow.compiler.certification import certify as certify_built
from infoflow.errors import InfoFlowError

CLAIM = Claim("|network - target|", 0.2, "every sequence")


@pytest.mark.parametrize("eps", [0.5, 0.01])
@pytest.mark.parametrize("T", [4, 16])
def test_attacked_is_below_the_bound_and_close_to_it(eps, T):
    certificate = iflow.certify(iflow.build(it.min_pair(), T, eps), seconds=1.0)
    assert certificate.holds
    assert certificate.attacked <= certificate.bound <= eps
    assert certificate.ratio < 3


def test_balls_and_lower_precisions_are_reported():
    pytest.importorskip("flint")
    certificate = iflow.certify(iflow.build(it.pairwise_max(2, 2), 5, 0.05), seconds=0.2, balls=True)
    measured = certificate.measured
    for block in ("ffns.0", "readout"):
        assert 0 < measured[f"{block} rule at least"] <= measured[f"{block} rule at most"]
    assert measured["float32"] < 0.06 < measured["bfloat16"]


def test_attack_finds_a_planted_error():
    def network(X):
        return X.sum((-1, -2)) + torch.relu(X[:, 0, 0] - 0.9)

    found = attack(network, lambda X: X.sum((-1, -2)), Region(3, np.array([-1.0, -1]), np.array([1.0, 1])), 0.5)
    assert found.error == pytest.approx(0.1, abs=1e-6)
    assert found.worst[0, 0] == 1.0


def test_a_successful_attack_falsifies():
    broken = Certificate(CLAIM, 0.1, "exact").with_attack(0.2)
    assert not broken.holds
    assert "the attack found 0.2" in broken.reasons[0]
    assert not Certificate(CLAIM, 0.1, "exact").with_attack(float("nan")).holds


@pytest.mark.parametrize(
    "payload", [None, [], {"bound": "x", "arithmetic": "exact"}, {"arithmetic": 3}, {"bound": 1.0}]
)
def test_damaged_certificates_are_refused(payload):
    with pytest.raises(iflow.InfoFlowError, match="certificate"):
        Certificate.from_json(payload)


def test_certificate_round_trip():
    parts, measured = {"softmax": 0.1}, {"float32": 0.2}
    certificate = Certificate(CLAIM, 0.1, "exact", ("a",), ("b",), 0.05, ("c",), parts, measured)
    assert Certificate.from_json(json.loads(json.dumps(certificate.to_json()))) == certificate


def run(*words):
    return CliRunner().invoke(cli, list(words), catch_exceptions=False, standalone_mode=False)


def test_build_then_certify(tmp_path):
    result = run("build", "pairwise_max:D=2,d=2", "-T", "5", "--eps", "0.1", "--json", "--out", str(tmp_path))
    report = json.loads(result.output)
    for key in ("path", "heads", "embed", "widths", "beta", "parameters", "nonzero", "bound", "seconds"):
        assert key in report
    assert report["bound"] <= 0.1
    result = run("certify", report["path"], "--seconds", "0.2", "--json")
    (checked,) = json.loads(result.output)["files"]
    assert checked["holds"]
    assert checked["attacked"] <= checked["bound"]
    assert result.return_value == 0


def test_a_refusal_names_the_file_it_is_about(tmp_path):
    network = iflow.build("pairwise_max:D=2,d=2", 5, 0.1)
    good = network.save(tmp_path / "good.safetensors")
    network.header["T"] = -3
    bad = network.save(tmp_path / "bad.safetensors")
    gone = tmp_path / "gone.safetensors"
    for file, words in ((bad, "-3"), (gone, "file")):
        with pytest.raises(InfoFlowError, match=words) as refusal:
            run("certify", str(good), str(file), "--seconds", "0")
        assert str(refusal.value).count(str(file)) == 1


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        ("compiler", "d_retrieval:D=2,d=1 -T 4 --eps 0.2"),
        ("exponential_head", "d_retrieval:D=2,d=1 -T 4 --eps 0.2 --weight-bound none --arch 'heads=1 embed=8'"),
        ("memory_head", "d_retrieval:D=2,d=1 -T 4 --eps 0.2 --weight-bound none --rule memory_head"),
        ("occupancy", "triangle_center:d=1 -T 4 --eps 3 --weight-bound none"),
    ],
)
def test_every_builder_reports_what_it_proved(builder, words, tmp_path):
    result = run("build", *shlex.split(words), "--out", str(tmp_path))
    (path,) = tmp_path.glob("*.safetensors")
    claim = iflow.certify(iflow.load(path), seconds=0.01).claim
    assert f"for {claim.inputs}\n" in result.output
    assert f"(asked {claim.limit:g})" in result.output
    assert (builder == "compiler") == ("rule chebyshev" in result.output)
    assert builder == "compiler" or f"rule {builder}" in result.output


def test_certify_fails_on_a_tampered_file(tmp_path):
    network = iflow.build("pairwise_max:D=2,d=2", 5, 0.1)
    network.cls_token.data[1] = 0.5
    path = network.save(tmp_path / "bad.safetensors")
    result = run("certify", str(path), "--seconds", "0.1")
    assert result.return_value == 1
    assert "cls_token[1]" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["build", "pairwise_mx", "-T", "4", "--eps", "1"], "did you mean 'pairwise_max'"),
        (["build", "min_pair"], "expected -T LENGTH and --eps"),
        (["build", "min_pair", "-T", "4", "--eps", "nan"], "eps to be"),
        (["build", "min_pair", "-T", "4", "--eps", "x"], "expected --eps to be a number"),
        (["build", "min_pair", "-T", "4", "--eps", "1", "--bogus", "1"], "unknown option '--bogus'"),
        (["build", "codec", "--bogus", "1"], "unknown option '--bogus'"),
        (["build", "kth_largest:k=3", "-T", "4", "--eps", "1"], "3-th largest"),
        (["certify", "nothing.safetensors"], "nothing.safetensors"),
    ],
)
def test_wrong_calls(words, message, tmp_path):
    with pytest.raises(iflow.InfoFlowError, match=message):
        run(*words, *(["--out", str(tmp_path)] if words[0] == "build" else []))
    assert not list(tmp_path.iterdir())


def test_names_of_targets_and_constructions_are_disjoint():
    from infoflow.construct.catalogue import CONSTRUCTIONS

    assert not set(CONSTRUCTIONS) & set(it.NAMED)


def test_a_batch_of_long_sequences_fits_in_memory():
    for heads, T in ((1, 4), (4, 64), (4, 512), (8, 4096)):
        batch = attack_module.batch_of(heads, T)
        assert 1 <= batch <= 64
        assert batch == 1 or 48 * heads * T * T * batch <= attack_module.MEMORY
    assert attack_module.batch_of(4, 64) == 64
    assert attack_module.batch_of(4, 4096) == 1


def test_certify_attacks_with_the_batch_that_fits(monkeypatch):
    monkeypatch.setattr(attack_module, "MEMORY", attack_module.CLIMBING * 5 * 5)
    seen = []
    network = iflow.build("min_pair", 5, 0.5)
    network.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    assert iflow.certify(network, seconds=0.2).holds
    assert set(seen) == {1, 2}  # one sequence a step; the precisions see it and one sample


def test_single_sequences_take_turns_in_the_kinds_of_starts():
    rng = np.random.default_rng(0)
    rounds = [attack_module.starts(rng, 1, 6, 2, number)[0] for number in range(6)]
    assert set(np.unique(rounds[1])) <= {0.0, 1.0}  # corners
    assert np.ptp(rounds[2], axis=0).max() == 0.0  # all tokens equal
    assert len(np.unique(rounds[5], axis=0)) == 2  # one apart from the rest


@pytest.mark.parametrize("domain", [[1.0], [0.0, 1.0, 2.0], "ab", 3])
def test_a_domain_that_is_no_pair_is_refused(domain):
    network = iflow.build("max_plus_min", 4, 0.1)
    network.header["domain"] = domain
    with pytest.raises(InfoFlowError, match=r"domain \(low, high\)"):
        iflow.certify(network, seconds=0.1)


def test_reasons_are_shortened_only_where_there_are_too_many():
    for count, shown in ((8, 8), (9, 9), (17, 9)):
        made = Certificate(Claim("error", 1.0, "all"), 0.5, "exact", reasons=tuple(f"reason {i}" for i in range(count)))
        reasons = _shortened(made).reasons
        assert len(reasons) == shown
        assert (reasons[-1] == f"and {count - 8} more") == (count > 8)


@pytest.mark.parametrize(
    ("error", "words"),
    [(MemoryError(), "more memory than there is"), (OverflowError("too large a power"), "too large a power")],
)
def test_numbers_that_no_bound_can_be_made_of_are_refused_with_the_cause(error, words):
    class Other:
        def stored(self):
            raise error

    with pytest.raises(InfoFlowError, match=words):
        iflow.certify(Other(), seconds=0.1)


def test_an_attack_lasts_equally_long_whoever_calls():
    command = next(option for option in cli.get_command(None, "certify").params if option.name == "seconds")
    for verb in (iflow.certify, certify_built):
        assert signature(verb).parameters["seconds"].default == command.default == 10.0
