"""Training gives the numbers it gave before there were tasks, under the keys it gave them: recorded then, float64."""

import pytest

from infoflow.architecture import Architecture
from infoflow.targets import pairwise_max, parse
from infoflow.train.fit import Recipe, Run, fit_many

PAIRS = pairwise_max(D=2, d=3, seed=0)
ARCH = Architecture((2, 2), (4, 4), 5)
SMALL = Recipe(samples=64, validation=20, batch=8, epochs=3, dtype="float64")
CASES = {
    "folded": Run(PAIRS, ARCH, 7, 1, SMALL),
    "positions, mask, norm": Run(
        PAIRS,
        ARCH.with_(positions="augmented", mask="causal"),
        7,
        1,
        SMALL.with_(layer_norm=True, encoder="mlp", encoder_width=6),
    ),
    "two outputs": Run(parse("d_retrieval:D=2,d=3"), ARCH, 7, 1, SMALL),
    "starts": Run(PAIRS, ARCH, 7, 1, SMALL.with_(starts=3, start_epochs=2, warm_up=5)),
    "rollback": Run(PAIRS, ARCH, 7, 1, SMALL.with_(rollback=1.0001, clip=0.5, lr=0.1, query_key_rate=3.0)),
}
RECORDED = {
    "folded": ("0a306c577ec7030f531ad879", [1.0026490591235444, 0.9993751582113058, 0.9993147043616347]),
    "positions, mask, norm": ("cf4785fce7231d9b659c5297", [1.0002806742555268, 1.0002092130124118, 1.0001627425877138]),
    "two outputs": ("ead8341d8e0567b63d200618", [1.0002169299878971, 1.0115338472978495, 1.0141754715004747]),
    "starts": ("f6f6c21e73c1ed0950c56b1b", [0.9988956588399548, 0.9998721642812367, 0.9999160658002731]),
    "rollback": ("3a896b80fabc7ce40a55322c", [0.9272451379838847, 0.9452720386975318, 0.7917801404912805]),
}


@pytest.mark.parametrize("name", CASES)
def test_keys_and_curves_are_those_recorded(name: str) -> None:
    """Bit for bit on the machine that recorded them; another processor rounds sums in another order."""
    key, curve = RECORDED[name]
    (result,) = fit_many([CASES[name]])
    assert result is not None
    assert result.key == key
    assert result.curve == pytest.approx(curve, rel=1e-9)
