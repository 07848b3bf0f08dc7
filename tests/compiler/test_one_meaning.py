"""A file means what `load` makes of it: a changed field is refused by name or the certificate falls, never `holds`."""

import json
import math
import re

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import infoflow as iflow
from infoflow.cli import cli
from infoflow.construct.codec import codec
from infoflow.construct.rank_one import equivariant as eq
from infoflow.construct.rank_one import equivariant_proof
from infoflow.construct.rank_one.context_map import ContextMap
from infoflow.construct.rank_one.memorize import memorize
from infoflow.construct.rank_one.saving import save_memorizer
from infoflow.construct.softmax_attention.anchors import Anchors
from infoflow.construct.softmax_attention.expression import parse
from infoflow.construct.softmax_attention.grid import grid_approximator
from infoflow.construct.softmax_attention.saving import save_grid, save_truncated_linear
from infoflow.construct.softmax_attention.truncated_linear import on_anchors, truncated_linear
from infoflow.errors import InfoFlowError
from infoflow.nn import files
from infoflow.nn.config import TransformerConfig

PEAK = "exp(0-5000*((x11-0.3)^2+(x12-0.2)^2))"


def sequences():
    rng = np.random.default_rng(0)
    return rng.normal(size=(9, 3))[np.array([rng.choice(9, 3, replace=False) for _ in range(6)])]


def save_memory(path):
    X = sequences()
    return save_memorizer(memorize(X, np.random.default_rng(1).integers(1, 9, size=X.shape[:2]), head_size=2), path)


def save_map(path):
    return ContextMap.fit(sequences()).save(path)


def save_pairs(path):
    return iflow.build("pairwise_max:D=3,d=2", 6, 0.05).save(path)


def save_squares(path):
    return iflow.build("d_retrieval:D=2,d=2", 5, 0.1).save(path)


def save_step(path):
    return equivariant_proof.save_equivariant(
        eq.approximate_equivariant(eq.FUNCTIONS["wave"], 1, 2, 4), "wave", "centre", path
    )


def save_occupancy(path):
    return iflow.build("triangle_center:d=1", 4, 3.0, weight_bound=None).save(path)


SAVED = {
    "memorizer": save_memory,
    "context_map": save_map,
    "pairs": save_pairs,
    "squares": save_squares,
    "equivariant": save_step,
    "occupancy": save_occupancy,
}


def changed(path, config=None, tensors=None, **header):
    """The file again with other header fields, configuration fields or tensors."""
    kind, old, about = files.read(path)
    about = {**about, **header}
    if config:
        about["config"] = {**about["config"], **config}
    files.write(path, kind, old if tensors is None else tensors(old), about)
    return path


def words_of(path):
    """The refusal in words, or the reasons against the certificate; empty when it holds."""
    try:
        certificate = iflow.certify(files.load(path), seconds=0.05, balls=False)
    except InfoFlowError as refusal:
        return str(refusal)
    assert certificate.holds == (not certificate.why_not)
    return "; ".join(certificate.why_not)


@pytest.mark.parametrize("kind", SAVED)
def test_an_untouched_file_holds(kind, tmp_path):
    certificate = iflow.certify(files.load(SAVED[kind](tmp_path / "n.safetensors")), seconds=0.05, balls=False)
    assert certificate.verdict == "holds", certificate.why_not


MEMORISER = [
    {"activation": "tanh"},
    {"activation": "gelu"},
    {"activation": "identity"},
    {"readout_activation": "tanh"},
    {"readout_skip": False},
    {"hard": True},
    {"mask": "causal"},
    {"residual": False},
    {"scales": [0.5]},
    {"scales": []},
    {"ffn_skip": False},
]


@pytest.mark.parametrize("config", MEMORISER, ids=str)
def test_a_memoriser_with_another_configuration(config, tmp_path):
    assert next(iter(config)) in words_of(changed(save_memory(tmp_path / "m.safetensors"), config))


@pytest.mark.parametrize("config", [{"hard": True}, {"mask": "causal"}, {"residual": False}, {"scales": [2]}], ids=str)
def test_a_contextual_map_with_another_configuration(config, tmp_path):
    assert next(iter(config)) in words_of(changed(save_map(tmp_path / "m.safetensors"), config))


@pytest.mark.parametrize("kind", SAVED)
def test_no_field_of_the_configuration_is_ignored(kind, tmp_path):
    """Every field set to every other value it may have: refused or not holding, or it is the same function."""
    path = SAVED[kind](tmp_path / "n.safetensors")
    original = TransformerConfig.from_json(files.read(path).header["config"])
    for name, value in original.to_json().items():
        for other in other_values(name, value, original):
            words = words_of(changed(path, {name: other}))
            assert words or (kind, name) == ("squares", "mask"), (name, other)  # one layer: the CLS sees all tokens
            assert "\n" not in words
            changed(path, {name: value})


def other_values(name, value, config):
    if isinstance(value, bool):
        return [not value]
    if name in ("activation", "readout_activation", "encoder_activation"):
        return [v for v in ("tanh", "gelu", "relu", "sigmoid", "identity", None) if v not in (value, None)]
    options = {"encoder": ("linear", "mlp", "none"), "positions": ("none", "additive", "augmented"),
               "mask": ("none", "causal")}  # fmt: skip
    if name in options:
        return [v for v in options[name] if v != value]
    if name == "scales":
        return [[-b for b in config.betas], [0.0] * config.layers, [1e200] * config.layers]
    if isinstance(value, int):
        return [value + 1]
    return [[v + 1 for v in value]] if value else [list(config.embed)]


def test_constant_units_under_an_identity_read_out(tmp_path):
    """Eight units that see nothing add 8 tanh(1), which an identity read-out does not have."""

    def add_units(tensors):
        first, second = tensors["readout.maps.0.bias"], tensors["readout.maps.1.weight"]
        spare = torch.nonzero(~tensors["readout.maps.0.weight"].any(1)).flatten()[:8]
        first[spare] = 1.0
        second[0, spare] = 1e-4
        tensors["readout.maps.1.bias"][0] -= 8e-4 * math.tanh(1.0)
        return tensors

    arch = "heads=3,3 embed=24,12 width=600,600"
    path = iflow.build("pairwise_max:D=3,d=4", 32, 0.05, arch=arch).save(tmp_path / "n.safetensors")
    changed(path, tensors=add_units)
    assert iflow.certify(files.load(path), seconds=0.05, balls=False).holds  # under tanh they cancel
    with pytest.raises(InfoFlowError, match="readout_activation"):
        iflow.certify(files.load(changed(path, {"readout_activation": "identity"})), seconds=0.05)


@pytest.mark.parametrize("scales", [[0, 0], [0.0, 1.0], [-1.0, -1.0]], ids=str)
def test_scales_that_are_no_temperatures(scales, tmp_path):
    path = changed(save_pairs(tmp_path / "n.safetensors"), {"scales": scales})
    with pytest.raises(InfoFlowError, match="scales"):
        iflow.certify(files.load(path), seconds=0.05)


@pytest.mark.parametrize("kind", SAVED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes_are_refused(kind, dtype, tmp_path):
    path = SAVED[kind](tmp_path / "n.safetensors")
    changed(path, tensors=lambda old: {name: tensor.to(dtype) for name, tensor in old.items()})
    with pytest.raises(InfoFlowError, match="float64"):
        iflow.certify(files.load(path), seconds=0.05)


@pytest.mark.parametrize("name", ["w", "t", "head1.W_Q", "head1.W_V"])
def test_one_tensor_of_another_dtype_is_refused(name, tmp_path):
    """Also where float32 holds the same number: 0 and 1 are no excuse."""
    net = on_anchors(torch.ones(1, dtype=torch.float64), 0.0, Anchors(-1.0, 1.0, 40))
    path = save_truncated_linear(net, tmp_path / "f")
    kind, tensors, header = files.read(path)
    files.write(path, kind, tensors | {name: tensors[name].float()}, header)
    with pytest.raises(InfoFlowError, match="float64"):
        iflow.load(path)


def test_a_false_lipschitz_constant_is_found(tmp_path):
    """The interval bound is not 0.01, the peak is found, and the word is not `holds`."""
    net = grid_approximator(parse(PEAK, 1, 2), 1, 2, 4, "quadratic", lipschitz=0.01)
    assert net.certificate.verdict.startswith("holds if f has Lipschitz constant 0.01")
    path = save_grid(net, PEAK, 0.01, tmp_path / "g.safetensors")
    certificate = iflow.certify(files.load(path), seconds=0.05)
    assert certificate.verdict == "does not hold"
    assert "Lipschitz constant is wrong" in certificate.reasons[0]
    result = CliRunner().invoke(
        cli,
        ["build", "grid", "--function", PEAK, "--n", "2", "--g", "4", "--variant", "quadratic", "--lipschitz", "0.01",
         "--figures", "no", "--out", str(tmp_path)],
    )  # fmt: skip
    assert "does not hold" in result.output


def test_a_true_lipschitz_constant_is_proved_and_an_open_one_is_named():
    near = grid_approximator(parse("sin(x11)", 1, 1), 1, 1, 8, "quadratic", lipschitz=1.0001)
    assert near.certificate.verdict == "holds"
    exact = grid_approximator(parse("sin(x11)", 1, 1), 1, 1, 8, "quadratic", lipschitz=1.0)  # attained: boxes never end
    assert exact.certificate.verdict == "holds if f has Lipschitz constant 1 in the sup norm"
    assert exact.check(exact.certificate).verdict == exact.certificate.verdict
    own = grid_approximator(lambda X: torch.tanh(40 * X[:, 0, 0]), 1, 1, 8, "quadratic", lipschitz=2.0)
    assert "holds if" in own.certificate.verdict
    assert not own.check(own.certificate).holds  # steps from random points are steeper


@pytest.mark.parametrize("eps", [0.01, 0.3, 1e-6, 1e-12])
def test_truncated_linear_is_within_eps(eps, tmp_path):
    net = truncated_linear([1.0], 0.0, -1.0, 1.0, eps, n=4)
    assert net.certificate.bound <= eps
    certificate = iflow.certify(files.load(save_truncated_linear(net, tmp_path / "t.safetensors")), seconds=0.05)
    assert certificate.claim.limit == eps
    assert certificate.holds
    smaller = changed(tmp_path / "t.safetensors", eps=eps * 0.9)
    assert not iflow.certify(files.load(smaller), seconds=0.05).holds
    with pytest.raises(InfoFlowError, match="rounding"):
        truncated_linear([1.0], 0.0, -1.0, 1.0, 1e-13, n=4)


@pytest.mark.parametrize("kind", [*SAVED, "codec"])
def test_what_was_asked_is_in_the_file(kind, tmp_path):
    """A smaller number there is not met, no number is no claim, and something else is refused."""
    path = tmp_path / "n.safetensors"
    codec(2, 1, 0.5).save(path) if kind == "codec" else SAVED[kind](path)
    kind, tensors, header = files.read(path)
    least = kind == "context_map"
    assert type(header["eps"]) is float
    asked = header["eps"] + 5 if least else header["eps"] * 1e-13
    for value, words in ((asked, "asked|cells|memory"), (None, "asked|eps"), ("0.1", "eps"), (True, "eps")):
        files.write(path, kind, tensors, {**header, "eps": value})
        assert re.search(words, words_of(path))


def test_a_loaded_certificate_is_not_believed(tmp_path):
    path = save_pairs(tmp_path / "n.safetensors")
    _, _, header = files.read(path)
    lie = {**header["certificate"], "bound": 1e-30, "attacked": None, "reasons": []}
    network = files.load(changed(path, certificate=lie))
    assert not network.certificate.holds
    assert "nobody has checked it" in network.certificate.reasons[0]
    assert iflow.certify(network, seconds=0.05, balls=False).bound > 1e-6


def test_positions_of_a_memoriser_are_part_of_the_proof(tmp_path):
    X = sequences()
    made = memorize(X, np.arange(X.shape[0] * X.shape[1]).reshape(X.shape[:2]) % 7 + 1, positions="corollary")
    path = save_memorizer(made, tmp_path / "m.safetensors")
    assert iflow.certify(files.load(path), seconds=0.1).holds

    def move(tensors):
        tensors["network.position"][1] += 0.5
        return tensors

    with pytest.raises(InfoFlowError, match="position table"):
        files.load(changed(path, tensors=move))


def run(*words):
    return CliRunner().invoke(cli, list(words), catch_exceptions=False, standalone_mode=False)


def test_the_command_prints_the_claim(tmp_path):
    path = str(save_pairs(tmp_path / "n.safetensors"))
    text = run("certify", path, "--seconds", "0.05").output
    for words in ("holds", "claim: |network - pairwise_max:D=3,d=2,seed=0| at most 0.05 for every sequence of 6 tokens",
                  "[-1, 1]^2", "arithmetic: float64", "assuming IEEE float64", "attacked"):  # fmt: skip
        assert words in text
    (found,) = json.loads(run("certify", path, "--seconds", "0.05", "--json").output)["files"]
    assert found["verdict"] == "holds"
    assert found["claim"]["limit"] == 0.05
    assert found["assumptions"]
    assert found["promises"] == []
    result = run("certify", path, "--seconds", "0.05", "--eps", "0.001")
    assert result.return_value == 1
    assert "above what was asked, 0.001" in result.output


def test_not_attacked_is_said(tmp_path):
    text = run("certify", str(save_map(tmp_path / "m.safetensors")), "--seconds", "0.05").output
    assert "not attacked" in text
    assert "claim: log10 of the distance of ids at least" in text
