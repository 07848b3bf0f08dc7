"""Architectures: the spelling round-trips, wrong ones are refused with a sentence, configs are read."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow import Architecture, InfoFlowError
from infoflow.architecture import matched_embed
from infoflow.commands.own_code import asked_architecture


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    layers = draw(st.integers(1, 4))
    heads = tuple(draw(st.integers(1, 6)) for _ in range(layers))
    embed = draw(st.none() | st.just(tuple(h * draw(st.integers(1, 8)) for h in heads)))
    width = draw(st.none() | st.tuples(*[st.integers(1, 99)] * layers))
    kv = draw(st.none() | st.just((1,) * layers))
    return Architecture(
        heads,
        embed,
        width,
        positions=draw(st.sampled_from(["none", "additive", "augmented", "joint"])),
        mask=draw(st.sampled_from(["none", "causal"])),
        kv_heads=kv,
        rotary=draw(st.booleans()),
    )


@given(architectures())
def test_spelling_round_trips(arch: Architecture) -> None:
    assert Architecture.parse(str(arch)) == arch


def test_one_number_holds_for_all_layers() -> None:
    arch = Architecture.parse("heads=4,4 embed=24 width=64")
    assert arch == Architecture((4, 4), (24, 24), (64, 64))
    assert arch.head_dims == (6, 6)
    assert arch.layers == 2


def test_what_is_left_open_is_filled_in_as_in_the_papers_experiments() -> None:
    assert [Architecture((D, D), 6 * D).filled().widths for D in (2, 4, 6)] == [(16 * D,) * 2 for D in (2, 4, 6)]
    assert Architecture.parse("heads=4,3").filled(4) == Architecture((4, 3), (24, 24), (64, 64))
    assert [matched_embed(D, h) for D, h in ((4, 4), (4, 3), (6, 5), (5, 4))] == [24, 24, 40, 32]
    stated = Architecture((2, 2), 8, 5)
    assert stated.filled(9) == stated


def test_what_is_left_open_has_no_number() -> None:
    """One meaning in the whole house: None is "some", and nobody counts with it."""
    open_width, open_both = Architecture.parse("heads=4,4 embed=24"), Architecture.parse("heads=4,4")
    assert open_both == Architecture((4, 4))
    assert str(open_both) == "heads=4,4"
    assert open_width.embeds == (24, 24)
    for arch, ask in (
        (open_width, lambda arch: arch.widths),
        (open_width, lambda arch: arch.parameters(4)),
        (open_both, lambda arch: arch.embeds),
        (open_both, lambda arch: arch.head_dims),
        (open_both, lambda arch: arch.filled()),
    ):
        with pytest.raises(InfoFlowError, match="leaves it open"):
            ask(arch)


@pytest.mark.parametrize(
    ("spelling", "says"),
    [
        ("heads=4,4 embed=25", "divisible"),
        ("heads=4,4 embed=24,24,24", "one embed per layer"),
        ("haeds=4 embed=4", "heads"),
        ("heads=4 heads=4 embed=4", "twice"),
        ("heads=0 embed=4", "at least 1"),
        ("heads=a embed=4", "integers"),
        ("heads embed=4", "key=value"),
        ("heads=4 embed=8 positions=relative", "positions"),
        ("heads=4 embed=8 kv_heads=3", "kv_heads"),
        ("", "heads"),
    ],
)
def test_wrong_spellings_are_refused(spelling: str, says: str) -> None:
    with pytest.raises(InfoFlowError, match=says):
        Architecture.parse(spelling)


def plain_count(arch: Architecture, d: int, outputs: int) -> int:
    """Counted by listing the shapes of every matrix and vector."""
    E, w, h, n = arch.embeds, arch.widths, arch.heads, arch.head_dims
    shapes = [(E[0], d), (E[0],), (E[0],)]
    for layer in range(arch.layers):
        shapes += [(n[layer], E[layer])] * (3 * h[layer]) + [(E[layer], E[layer])]
        out = E[layer + 1] if layer + 1 < arch.layers else outputs
        shapes += [(w[layer], E[layer]), (w[layer],), (out, w[layer]), (out,)]
    return sum(a[0] * (a[1] if len(a) == 2 else 1) for a in shapes)


@given(architectures(), st.integers(1, 5), st.integers(1, 3))
def test_parameter_count_is_the_listed_one(arch: Architecture, d: int, outputs: int) -> None:
    plain = arch.with_(positions="none", kv_heads=None).filled(3)
    assert plain.parameters(d, outputs) == plain_count(plain, d, outputs)


def test_hugging_face_configs(tmp_path: Path) -> None:
    def read(config: object) -> Architecture:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return asked_architecture(f"hf:{tmp_path}")

    bert = read({"num_hidden_layers": 2, "num_attention_heads": 12, "hidden_size": 384, "intermediate_size": 1536})
    assert bert == Architecture((12, 12), 384, 1536, positions="additive")
    gpt2 = read({"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "n_inner": None})
    assert gpt2 == Architecture((4, 4), 64, 256, positions="additive", mask="causal")
    llama = read(
        {"num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 64,
         "intermediate_size": 172, "rope_theta": 10000.0}
    )  # fmt: skip
    assert llama == Architecture(8, 64, 172, mask="causal", kv_heads=4, rotary=True)
    for broken in ([1], {"num_hidden_layers": 2}, {"num_hidden_layers": "2", "n_head": 1, "n_embd": 4}):
        with pytest.raises(InfoFlowError):
            read(broken)
    with pytest.raises(InfoFlowError, match=r"config\.json"):
        asked_architecture("hf:/nowhere/at/all")
    with pytest.raises(InfoFlowError, match="key=value"):
        Architecture.parse(f"hf:{tmp_path}")  # a spelling of a header: no file is opened for it
