"""Files that lie: every tensor is what a rank-1 network may have, and the numbers are chosen to fool the proof.

Each was once said to hold, or had a bound that its own data broke. The truth is computed here without `certify`.
"""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from infoflow.compiler.certification import certify
from infoflow.construct.rank_one.contexts import contexts_of
from infoflow.construct.rank_one.head import RankOneHead
from infoflow.construct.rank_one.memorize import memorize
from infoflow.construct.rank_one.network import attention_network
from infoflow.construct.rank_one.saving import save_map, save_memorizer
from infoflow.errors import InfoFlowError
from infoflow.nn import files
from infoflow.nn.files import load


def written(
    path: Path, vocabulary: Any, tokens: Any, key: Any, query: Any, output: Any, eps: float = -1.0, size: int = 1
) -> Any:
    """A contextual map with these weights, saved and read back."""
    contexts = contexts_of(np.array(vocabulary, dtype=float), np.array(tokens), "padding")
    head = RankOneHead(np.array(key, dtype=float), np.array(query, dtype=float), np.array(output, dtype=float), size)
    save_map(attention_network(head, contexts), contexts, {"eps": eps, "certificate": None}, path)
    return load(path)


def uniform_ids(vocabulary: Any, tokens: Any, key: Any, output: Any) -> list[list[Fraction]]:
    """x + a s in exact arithmetic where the query is 0: s is the plain average of key.x over the sequence."""
    table = [[Fraction(value) for value in row] for row in vocabulary]
    found = []
    for sequence in tokens:
        seen = [table[token] for token in sequence if token >= 0]
        average = sum(sum(Fraction(k) * x for k, x in zip(key, row, strict=True)) for row in seen) / len(seen)
        found.append([x + Fraction(a) * average for x, a in zip(seen[0], output, strict=True)])
    return found


def test_an_output_vector_whose_squares_underflow_still_moves_ids(tmp_path: Path) -> None:
    """|a| = 1e-170, p = 1e170: x + a p is 0 for both tokens. The norm of a, as a root of squares, was 0."""
    call = ([[1.0], [2.0]], [[0], [1]], [2.0**566], [0.0], [-(2.0**-566)])
    one, other = uniform_ids(*call[:3], call[4])
    assert one == other
    assert not certify(written(tmp_path / "lie.safetensors", *call)).holds


def test_averages_that_overflow_are_not_infinitely_far_apart(tmp_path: Path) -> None:
    """{0, 1} and {0, 1, 2} have equal averages; the second sum overflows, and inf - x looked like a gap."""
    vocabulary = [[0.9375, 0, 1, 0], [0.3125, 0, 2, 0], [0.625, 0, 3, 0], [0, 1, 4, 0]]
    tokens = [[0, 1, -1], [0, 1, 2], [3, -1, -1]]
    key, output = [1.125 * 2.0**1023, 0, 0, 0], [0, 0, 0, 2.0**-1030]
    one, other, _ = uniform_ids(vocabulary, tokens, key, output)
    assert one == other
    found = certify(written(tmp_path / "lie.safetensors", vocabulary, tokens, key, [0, 1e10, 0, 0], output))
    assert not found.holds
    assert "the averages of two contexts of one token could not be separated" in found.reasons


@pytest.mark.parametrize("size", [1, 3])
def test_a_gap_between_numbers_that_lost_their_digits_is_not_a_gap(tmp_path: Path, size: int) -> None:
    """Keys near the smallest float64: averages round to its multiples, and a gap of one of them is nothing."""
    vocabulary, tokens = [[1.0, 0], [1.24, 1], [1.26, 2]], [[0, 1], [0, 2]]
    key, output = [10 * 2.0**-1074, 0], [0, 2.0**400]
    one, other = uniform_ids(vocabulary, tokens, key, output)
    real = abs(one[1] - other[1])
    made = written(tmp_path / "lie.safetensors", vocabulary, tokens, key, [0, 0], output, eps=-300.0, size=size)
    found = certify(made)
    assert found.bound is None or found.bound <= math.log10(real.numerator) - math.log10(real.denominator)


def test_a_norm_of_subnormal_squares_is_not_rounded_up(tmp_path: Path) -> None:
    """|a| = 1.5e-162; its square rounds to the smallest float64, whose root is half as large again."""
    vocabulary, tokens = [[1.0, 0], [2.0, 0]], [[0, 0, 1], [0, 1, 1]]
    made = written(tmp_path / "lie.safetensors", vocabulary, tokens, [1, 0], [0, 0], [1.5e-162, 0], -162.2)
    found = certify(made)
    assert found.bound is not None
    assert found.bound <= np.log10(1.5e-162 / 3) + 1e-9
    assert not found.holds


def test_matrices_below_the_normal_numbers_are_of_no_rank(tmp_path: Path) -> None:
    """Half of the smallest float64 is 0: what is read back from the first row is then not what the others hold."""
    vocabulary, tokens = [[1.0, 0], [2.0, 1], [4.0, 3]], [[0, 1], [0, 2]]
    made = written(
        tmp_path / "lie.safetensors", vocabulary, tokens, [1, 0], [0, 0], [0, 2.0**-1073], eps=-330.0, size=2
    )
    found = certify(made)
    assert any("below the normal numbers" in reason for reason in found.reasons)
    assert found.bound is None


def memorised(path: Path, count: int = 40) -> tuple[dict[str, Any], dict[str, Any]]:
    X = np.arange(1, count + 1, dtype=float).reshape(count, 1, 1)
    save_memorizer(memorize(X, np.arange(1, count + 1).reshape(count, 1)), path)
    _, tensors, header = files.read(path)
    return {name: tensor.clone() for name, tensor in tensors.items()}, header


def test_a_coefficient_below_the_grid_of_the_exact_sum_is_refused(tmp_path: Path) -> None:
    """A unit of slope 1e-31 behind the last knot but one, on a read-out of size 1e40: the exact sum, in multiples of
    2^-100, did not see it, and the bound was 0.0003 where the error at one place is 5e8. An attack on a sample of a
    large file may miss that place."""
    tensors, header = memorised(tmp_path / "true.safetensors")
    tensors["network.attentions.0.output"].zero_()  # H = X, and the labels are X
    tensors["network.readout.maps.0.weight"][:] = 1e40
    knots = torch.arange(39, dtype=torch.float64) + 1.5
    tensors["network.readout.maps.0.bias"] = -1e40 * knots
    tensors["network.readout.maps.1.bias"].zero_()
    tensors["network.readout.maps.1.weight"].zero_()
    tensors["network.readout.maps.1.weight"][0, -1] = 1e-31
    path = files.write(tmp_path / "lie.safetensors", "memorizer", tensors, header)
    network = load(path)
    out = network(torch.from_numpy(network.inputs)).detach().numpy()[:, 0, 0]
    assert np.abs(out - network.labels[network.contexts.class_of][:, 0, 0]).max() > 1e8
    with pytest.raises(InfoFlowError, match=r"multiples of 2\^-100"):
        certify(network, seconds=0.01)


@pytest.mark.parametrize("name", ["network.readout.maps.0.bias", "network.readout.maps.1.bias"])
def test_knots_and_starts_below_the_grid_are_refused(tmp_path: Path, name: str) -> None:
    tensors, header = memorised(tmp_path / "true.safetensors", 3)
    tensors[name].view(-1)[0] = 2.0**-101
    if name.endswith("0.bias"):
        tensors[name][1] = -1.0
    with pytest.raises(InfoFlowError, match=r"multiples of 2\^-100"):
        certify(load(files.write(tmp_path / "lie.safetensors", "memorizer", tensors, header)), seconds=0.01)


def test_a_hole_in_a_sequence_is_refused(tmp_path: Path) -> None:
    """-1 before a token: the places behind the count of real ones were never run, their states were any memory."""
    X = np.arange(1.0, 7.0).reshape(2, 3, 1)
    path = tmp_path / "true.safetensors"
    save_memorizer(memorize(X, np.arange(6).reshape(2, 3)), path)
    _, tensors, header = files.read(path)
    changed = {name: tensor.clone() for name, tensor in tensors.items()}
    changed["data.tokens"][0, 1] = -1
    with pytest.raises(InfoFlowError, match="behind the end of a sequence"):
        load(files.write(tmp_path / "lie.safetensors", "memorizer", changed, header))
