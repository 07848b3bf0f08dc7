"""Score answers to the hidden part too: whoever has the salt makes its truth again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from infoflow.errors import InfoFlowError
from infoflow.probes.benchmark.catalogue import orders
from infoflow.probes.benchmark.make import make
from infoflow.probes.benchmark.read import PlantedNetwork, open_benchmark
from infoflow.probes.benchmark.score import judge, summary
from infoflow.probes.benchmark.truth import Truth


def score_with(folder: str | Path, answers: Mapping[int, Mapping[str, Any]], salt: str | None) -> dict[str, Any]:
    """As `score`; with the salt the hidden networks' truth is made again and they count as well."""
    benchmark = open_benchmark(folder)
    if salt is not None and not benchmark.index["salted"]:
        raise InfoFlowError("expected no salt, this benchmark was made without one and hides nothing.")
    todo = orders(int(benchmark.index["count"]), int(benchmark.index["seed"]), salt)
    judged = []
    for network in benchmark:
        if network.number not in answers or (network.hidden and salt is None):
            continue
        truth = _again(network, todo[network.number]) if network.hidden else network.truth()
        judged.append(judge(truth, answers[network.number], {}))
    if not judged:
        raise InfoFlowError("expected answers to networks whose truth is known here, got none; the salt is missing?")
    return summary(judged)


def _again(network: PlantedNetwork, order: Any) -> Truth:
    """The truth of a hidden network, once the weights it belongs to are those of the file."""
    made = make(order)
    mine, theirs = made.network.state_dict(), network.model.state_dict()
    same = mine.keys() == theirs.keys() and all(
        mine[name].shape == theirs[name].shape and torch.allclose(mine[name], theirs[name], atol=1e-4, rtol=1e-3)
        for name in mine
    )
    if not same:
        raise InfoFlowError(f"expected the salt this benchmark was made with, network {network.number} differs.")
    return made.truth
