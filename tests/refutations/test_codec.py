"""Theorem 6: exact sizes, exact error, the errata, Lemma 1, and the twins that empty its second half."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import infoflow
from infoflow.commands.constructions import codec as command
from infoflow.construct.codec import codec, heaviside_by_tanh, sizes
from infoflow.errors import InfoFlowError, JobError
from infoflow.refutations.twins import Twins, _bisect_square, _hemisphere, codec_twins, winding


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([1.0, 0.5, 0.3, 0.25]), st.integers(0, 99))
def test_heaviside_codec_is_the_truncation(m, n, eps, seed):
    if sizes(m, n, eps).latent_bits > 16:
        return
    made = codec(m, n, eps)
    L = math.ceil(math.log2(2 * m / eps))
    assert made.bits == max(L, 1)
    assert made.latent_bits == math.ceil(m * made.bits / n)
    assert made.encoder.units == m * (2**made.bits - 1)
    assert made.decoder.units == n * (2**made.latent_bits - 1)
    V = np.random.default_rng(seed).uniform(size=(200, m))
    V[:20] = np.round(V[:20] * 2**made.bits) / 2**made.bits  # on thresholds, 0 and 1 among them
    expected = np.minimum(np.floor(V * 2**made.bits), 2**made.bits - 1) / 2**made.bits
    assert (made(V) == expected).all()
    latent = made.encode(V) * 2**made.latent_bits
    assert (latent == np.round(latent)).all()
    assert made.attack(seed) == 2.0**-made.bits == made.certificate.bound


def test_the_last_level_is_clipped_at_one():
    made = codec(2, 1, 0.5)
    assert (made(np.ones((1, 2))) == 1 - 2.0**-made.bits).all()
    assert (made.encode(np.ones((1, 2))) < 1).all()


def test_slopes_of_the_size_law():
    """log(parameters) against log(1/eps): m/n, the decoder's share; the encoder alone has slope 1."""
    for (m, n), measured in {(2, 1): 1.91, (3, 2): 1.47, (4, 2): 1.95, (6, 3): 1.97}.items():
        eps = [0.5, 0.25, 0.125, 0.0625]
        made = [sizes(m, n, e) for e in eps]
        total = [s.encoder_units * (m + 1 + n) + n + s.decoder_units * (m + 1 + n) + m for s in made]
        slope = np.polyfit(np.log(1 / np.array(eps)), np.log(total), 1)[0]
        assert slope == pytest.approx(measured, abs=0.06)
        assert slope == pytest.approx(m / n, abs=0.12)
        encoder = np.polyfit(np.log(1 / np.array(eps)), np.log([s.encoder_units for s in made]), 1)[0]
        assert encoder == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize(
    ("m", "n", "eps", "p"), [(2, 1, 0.25, 2.0), (3, 2, 0.5, 1.0), (2, 1, 0.5, 4.0), (1, 1, 0.1, 2.0)]
)
def test_tanh_codec_keeps_its_bound(m, n, eps, p):
    made = codec(m, n, eps, "tanh", p)
    assert made.certificate.bound <= eps
    assert made.attack(1) <= made.certificate.bound


def test_tanh_network_is_the_plain_sum():
    made = codec(2, 1, 1.0, "tanh", slope=20.0 * 4)
    V = np.random.default_rng(0).uniform(size=(50, 2))
    steps = made.encoder
    plain = np.zeros((50, 1))
    for j in range(2):
        unit = (1 + np.tanh(steps.slope * (V[:, j, None] - steps.thresholds[j]))) / 2
        plain += unit @ steps.jumps[j].T
    assert np.allclose(made.encode(V), plain, rtol=0, atol=1e-14)


def test_printed_dyadic_thresholds_fail_where_midpoints_work():
    """Latents are multiples of 2^-q; a decoder that cuts there sits on every one of them, and a smooth encoder is
    never exactly there."""
    made = codec(2, 1, 0.25, "tanh")
    q = made.latent_bits
    dyadic = np.broadcast_to(np.arange(1, 2**q) / 2.0**q, made.decoder.thresholds.shape)
    printed = replace(made, decoder=replace(made.decoder, thresholds=dyadic))
    V = np.random.default_rng(0).uniform(size=(4000, 2))
    assert made.error(V, 2) <= 0.1
    assert printed.error(V, 2) > 2 * made.error(V, 2)
    inner = np.abs(V * 2**made.bits - np.round(V * 2**made.bits)).min(1) > 0.3  # far from every encoder threshold
    assert made.error(V[inner], math.inf) <= 2.0**-made.bits * 1.5
    assert printed.error(V[inner], math.inf) > 0.2


def test_gentle_slopes_cost_accuracy():
    steep, gentle = (codec(3, 2, 0.5, "tanh", slope=k * 2**4) for k in (1000.0, 20.0))
    assert steep.attack() < 0.1 < 0.15 < gentle.attack() < 0.35


@settings(max_examples=40, deadline=None)
@given(st.floats(0.02, 0.5), st.floats(1.0, 4.0), st.floats(0.1, 3.0), st.floats(0.0, 2.0))
def test_lemma_1_with_its_constants(delta, p, density, atom):
    """mu = density * Lebesgue on [-1, 1/2] plus an atom at 0."""
    unit = heaviside_by_tanh(delta, p, 1.5 * density + atom, density, atom)
    x = np.concatenate([np.linspace(-1, 0, 20_001)[:-1] + 2.5e-5, np.linspace(0, 0.5, 10_001)[1:] - 2.5e-5])
    fine = np.linspace(-1, 1, 20_001) * min(20 / unit.B, 0.5) if unit.B else np.zeros(0)
    value = np.abs((x >= 0) - (unit.A * np.tanh(unit.B * x + unit.C) + unit.D)) ** p
    width = 5e-5
    outside = np.abs(x) > (np.abs(fine).max(initial=0.0))
    inner = np.abs((fine >= 0) - (unit.A * np.tanh(unit.B * fine + unit.C) + unit.D)) ** p
    mass = density * (value[outside].sum() * width + (np.trapezoid(inner, fine) if fine.size else 0.0))
    mass += atom * (1 - (unit.A * math.tanh(unit.C) + unit.D)) ** p
    assert unit.bound < delta
    assert mass ** (1 / p) <= unit.bound * 1.02 + 1e-3


@pytest.mark.parametrize("wrong", [(0.0, 2, 1, 1), (0.1, 0.5, 1, 1), (0.1, 2, 0, 1), (0.1, 2, 1, 1, 3)])
def test_lemma_1_refuses(wrong):
    with pytest.raises(InfoFlowError):
        heaviside_by_tanh(*wrong)


def test_twins_of_the_tanh_codec():
    for m, n, eps in ((2, 1, 0.25), (3, 2, 0.5), (3, 2, 0.125), (4, 2, 0.25)):
        made = codec(m, n, eps, "tanh")
        found = codec_twins(made.encode, m, n)
        assert found.latent_difference <= 1e-12 * made.encoder.slope
        assert np.abs(found.V - found.W).max() == 1.0
        assert (found.V + found.W == 1).all()
        errors = found.decoder_errors(made.decode, made.encode(found.V[None])[0])
        assert max(errors) >= 0.5 - 1e-9


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(2, 1), (3, 2), (5, 2), (4, 1)]))
def test_twins_of_any_continuous_encoder(seed, shape):
    m, n = shape
    generator = np.random.default_rng(seed)
    A, b, C = generator.normal(size=(m, 12)) * 2, generator.normal(size=12), generator.normal(size=(12, n))

    def encode(V):
        return np.tanh(V @ A + b) @ C

    found = codec_twins(encode, m, n)
    assert found.cell <= 1e-12
    slope = np.abs(A).sum() * np.abs(C).max()
    assert found.latent_difference <= 1e-12 * slope
    assert np.abs(found.V - found.W).max() == 1.0


def test_the_latent_difference_is_that_of_the_twins():
    """In one coordinate, value by value, so that a batch rounds as one input does."""
    for k in range(1, 9):

        def encode(V, k=k):
            return V[:, :1] ** 3 + 0.1 * k * V[:, 1:2]

        found = codec_twins(encode, 2, 1)
        assert found.latent_difference == abs(encode(found.V[None]) - encode(found.W[None]))[0, 0]


def test_three_turns_are_odd_too():
    """The cube of the plane's coordinates winds three times around its zero."""

    def encode(V):
        z = (V[:, 0] - 0.5 + 1j * (V[:, 1] - 0.4)) ** 3
        return np.stack([z.real, z.imag], 1)

    found = codec_twins(encode, 3, 2)
    assert np.abs(encode(found.V[None]) - encode(found.W[None])).max() < 1e-12
    assert found.cell < 1e-12


def test_heaviside_encoder_has_no_twins():
    for m, n in ((2, 1), (3, 2)):
        with pytest.raises(JobError, match=r"continuous.* across (0|\de-1\d)\.$"):
            codec_twins(codec(m, n, 0.5).encode, m, n)


def test_twins_refuse_what_they_cannot_do():
    for m, n in ((1, 1), (4, 3)):
        with pytest.raises(InfoFlowError):
            codec_twins(lambda V, n=n: V[:, :n], m, n)
    with pytest.raises(InfoFlowError, match="finite"):
        codec_twins(lambda V: V, 2, 1)


def test_winding_number():
    square = np.array([-1.0, -1.0]), np.array([1.0, 1.0])

    def power(w, k):
        z = (w[:, 0] + 1j * w[:, 1]) ** k
        return np.stack([z.real, z.imag], 1)

    assert winding(lambda w: power(w - 0.3, 1), *square, 65) == 1
    assert winding(lambda w: power(w - 0.3, 3), *square, 65) == 3
    assert winding(lambda w: power(w - 3.0, 1), *square, 65) == 0


def test_command_saves_and_loads(tmp_path):
    report = command.run({"m": "2", "n": "1", "eps": "0.5", "activation": "tanh"}, tmp_path, 0)
    assert "share a latent" in command.text(report)
    loaded = infoflow.load(report["path"])
    V = np.random.default_rng(0).uniform(size=(10, 2))
    assert (loaded(V) == codec(2, 1, 0.5, "tanh")(V)).all()
    assert loaded.certificate.holds
    loaded.decoder.jumps[0, 0, 5] += 1e-3
    loaded.save(tmp_path / "tampered.safetensors")
    tampered = infoflow.load(tmp_path / "tampered.safetensors")
    assert not tampered.certificate.holds
    assert "decoder.jumps" in tampered.certificate.reasons[0]


@pytest.mark.parametrize(
    "options",
    [
        {"m": "0"},
        {"eps": "0"},
        {"eps": "-1"},
        {"m": "x"},
        {"activation": "relu"},
        {"p": "0.5"},
        {"speed": "1"},
        {"m": "40"},
        {"m": "9" * 300},
        {"n": "9" * 12},
        {"eps": "5e-324"},
        {"p": "1e6"},
        {"slope": "nan", "activation": "tanh"},
    ],
)
def test_command_refuses(options, tmp_path):
    with pytest.raises(InfoFlowError):
        command.run(options, tmp_path, 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change", [{"m": 10**18}, {"m": float("1e400")}, {"eps": "small"}, {"slopes": []}, {"n": 2}, {"p": None}]
)
def test_hostile_file_is_refused(change, tmp_path):
    import json

    import torch
    from safetensors.torch import save_file

    from infoflow.nn.files import FORMAT, KEY

    made = codec(2, 1, 0.5)
    header = {"m": 2, "n": 1, "eps": 0.5, "p": 2.0, "slopes": None} | change
    parts = {"encoder": made.encoder, "decoder": made.decoder}
    tensors = {f"{k}.{f}": torch.from_numpy(getattr(s, f)) for k, s in parts.items() for f in ("thresholds", "jumps")}
    path = tmp_path / "hostile.safetensors"
    save_file(tensors, str(path), metadata={KEY: json.dumps({"format": FORMAT, "kind": "codec", "header": header})})
    with pytest.raises(InfoFlowError):
        infoflow.load(path)


def test_cells_shrink_on_both_axes():
    """The longer side is cut: however far a zero lies from the middle of one axis, it is enclosed on both."""
    for zero in ((0.71, -0.23), (-0.31, 0.57)):
        low, high = _bisect_square(lambda P, zero=zero: P - np.array(zero))
        assert max(np.abs(low - zero).max(), np.abs(high - zero).max()) < 1e-12


def test_a_decoder_that_returns_one_twin_errs_on_the_other_alone():
    V = np.array([0.125, 0.75])
    twins = Twins(V, 1 - V, 0.0, 0.0)
    assert twins.decoder_errors(lambda z: V[None], np.zeros(1)) == (0.0, 0.75)
    assert twins.decoder_errors(lambda z: 1 - V[None], np.zeros(1)) == (0.75, 0.0)


def test_the_hemisphere_is_the_upper_half_of_the_cube():
    """The middle square is the top, the rim goes down to the equator, opposite points of the edge to opposite ones."""
    w = np.array([[0.2, -0.1], [0.5, 0.0], [0.75, 0.0], [1.0, -0.5], [-1.0, 0.5]])
    wanted = [[0.7, 0.4, 1.0], [1.0, 0.5, 1.0], [1.0, 0.5, 0.75], [1.0, 0.25, 0.5], [0.0, 0.75, 0.5]]
    assert _hemisphere(w) == pytest.approx(np.array(wanted))


def test_a_zero_and_its_opposite_are_not_counted_twice():
    """On side faces: a search that reached beyond the equator would meet both, and an even number of turns."""
    kernel = np.array([0.0, 1.0, 0.3])
    rows = np.linalg.svd(kernel[None])[2][1:]
    for sign in (1.0, -1.0):
        found = codec_twins(lambda V, sign=sign: (V - 0.5) @ (rows * [sign, 1.0, 1.0]).T, 3, 2)
        assert found.latent_difference < 1e-12
