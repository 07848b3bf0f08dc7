import numpy as np
import onnxruntime
import pytest
import torch

from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer, TransformerConfig
from infoflow.nn.export import to_onnx

CONFIGS = {
    "plain": TransformerConfig(dim=3, heads=(2, 1), head_dims=(3, 4), widths=(8, 8), activation="gelu"),
    "positions": TransformerConfig(
        dim=2, heads=(1,), head_dims=(6,), widths=(8,), outputs=2, positions="additive", length=5, layer_norm=True
    ),
    "causal, per token": TransformerConfig(
        dim=2, heads=(2, 2), head_dims=(2, 2), widths=(8, 8), outputs=3, cls=False, mask="causal"
    ),
    "mlp encoder, augmented": TransformerConfig(
        dim=2, heads=(2,), head_dims=(3,), widths=(4,), encoder="mlp", encoder_width=5,
        positions="augmented", length=5, position_dim=2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_onnxruntime_gives_the_same_numbers(name, tmp_path):
    network = Transformer(CONFIGS[name])
    network.initialise(torch.Generator().manual_seed(0))
    path = to_onnx(network, tmp_path / "net.onnx", T=5)
    session = onnxruntime.InferenceSession(str(path))
    X = torch.randn(7, 5, CONFIGS[name].dim, generator=torch.Generator().manual_seed(1))  # another batch than traced
    (got,) = session.run(None, {"X": X.numpy()})
    expected = network(X).detach().numpy()
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_stack_is_refused(tmp_path):
    with pytest.raises(InfoFlowError, match="select"):
        to_onnx(Transformer(CONFIGS["plain"], stack=(2,)), tmp_path / "net.onnx", T=5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("T", "says"), [("5", "integer"), (5.0, "integer"), (0, "at least 1"), (10**7, "memory")])
def test_a_length_that_is_none_is_one_sentence(tmp_path, T, says):
    with pytest.raises(InfoFlowError, match=says):
        to_onnx(Transformer(CONFIGS["plain"]), tmp_path / "net.onnx", T=T)
    assert not list(tmp_path.iterdir())


def test_nothing_is_put_in_the_place_of_a_folder(tmp_path):
    with pytest.raises(InfoFlowError, match="a folder"):
        to_onnx(Transformer(CONFIGS["plain"]), tmp_path, T=5)
    with pytest.raises(InfoFlowError, match="path"):
        to_onnx(Transformer(CONFIGS["plain"]), "net\0.onnx", T=5)
