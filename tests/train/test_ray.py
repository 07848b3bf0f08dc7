"""The Ray engine on a real cluster of two nodes on this machine, one of which is killed while it trains."""

import logging
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError, JobError
from infoflow.targets import pairwise_max
from infoflow.train import checkpoint, part
from infoflow.train.fit import Recipe, Run, Store, fit_many

ray = pytest.importorskip("ray", reason="the extra `cluster` is not installed")
pytestmark = [  # Ray leaves sockets and processes to the garbage collector; what is ours stays an error
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]
ARCHES = [Architecture((1, 1), (2, 2), width) for width in (3, 4, 5)]  # three groups: three tasks on two nodes
RECIPE = Recipe(samples=16, validation=8, batch=4, epochs=None, steps=700, dtype="float64", evaluate_every=100)


def runs_of(steps: int) -> list[Run]:
    return [Run(pairwise_max(D=1, d=2, seed=0), arch, 3, 0, RECIPE.with_(steps=steps)) for arch in ARCHES]


RUNS = runs_of(700)


def head_node() -> Any:
    """Ray gives a node 30 s to start; on a busy machine that may take more than one try."""
    from ray.cluster_utils import Cluster

    for _ in range(3):
        try:
            return Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    pytest.skip("Ray could not start a node within 30 s, three times")


@pytest.fixture
def cluster() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = head_node()
        ray.init(
            address=made.address,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    yield made
    ray.shutdown()
    made.shutdown()


def test_a_killed_node_loses_nothing_and_doubles_nothing(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes(timeout=120)
    monkeypatch.setattr(part, "SAVE_EVERY", 0.2)
    puts: list[str] = []
    put = Store.put
    monkeypatch.setattr(Store, "put", lambda self, result, *rest: (puts.append(result.key), put(self, result, *rest)))
    for steps in (700, 2800, 11_200):  # on a busy machine one node may train everything before the other wakes up
        runs, found, folder = runs_of(steps), [], tmp_path / str(steps)
        keys, saved = {run.key for run in runs}, folder / "checkpoints"
        sweep = _start(runs, folder, found)
        while sweep.is_alive() and not _both_busy(saved, keys):
            time.sleep(0.1)
        if sweep.is_alive() and not keys & set(puts):
            break
        sweep.join()
    assert sweep.is_alive()
    cluster.remove_node(second, allow_graceful=False)
    sweep.join()
    assert sorted(key for key in puts if key in keys) == sorted(keys)
    assert Store(folder).keys() == sorted(keys)
    expected = fit_many(runs)
    assert [result.curve for result in found] == [result.curve for result in expected]
    assert not list(saved.iterdir())


def _start(runs: list[Run], folder: Path, found: list[Any]) -> threading.Thread:
    sweep = threading.Thread(target=lambda: found.extend(fit_many(runs, folder, engine="ray")))
    sweep.start()
    return sweep


def _both_busy(saved: Path, keys: set[str]) -> bool:
    """Whether both nodes train and have saved a state on the way."""
    return len(checkpoint.find(saved, keys)) >= 2 and ray.available_resources().get("CPU", 0) == 0


def test_an_unreachable_address_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="none answered"):
        fit_many(RUNS, tmp_path / "store", engine="ray", address="127.0.0.1:1")
    with pytest.raises(InfoFlowError, match="HOST:PORT"):
        fit_many(RUNS, tmp_path / "store", engine="ray", address="somewhere")
    assert not (tmp_path / "store").exists()
