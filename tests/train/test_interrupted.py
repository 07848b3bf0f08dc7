"""Interrupted sweeps: kill -9, Ctrl-C, and a real Ray cluster of two nodes one of which is killed while it trains.

One file, so that its tests run one after another: two clusters that start at once on two cores take minutes.
"""

import importlib.util
import json
import logging
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import infoflow
from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError, JobError
from infoflow.targets import pairwise_max
from infoflow.train import checkpoint, plan
from infoflow.train import ray as engine
from infoflow.train.fit import Recipe, Run, Store, fit_many
from infoflow.train.part import Stop

ray: Any = importlib.import_module("ray") if importlib.util.find_spec("ray") else None
needs_ray = pytest.mark.skipif(ray is None, reason="the extra `cluster` is not installed")
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


@needs_ray
def test_a_killed_node_loses_nothing_and_doubles_nothing(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes(timeout=120)
    monkeypatch.setattr(plan, "SAVE_EVERY", 0.2)
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
    assert not checkpoint.find(saved, keys)


def _start(runs: list[Run], folder: Path, found: list[Any]) -> threading.Thread:
    sweep = threading.Thread(target=lambda: found.extend(fit_many(runs, folder, engine="ray")))
    sweep.start()
    return sweep


def _both_busy(saved: Path, keys: set[str]) -> bool:
    """Whether both nodes train and have saved a state on the way."""
    return len(checkpoint.find(saved, keys)) >= 2 and ray.available_resources().get("CPU", 0) == 0


ALONE = """
from infoflow.train.ray import connect
ray = connect(None).ray
print(ray.get(ray.remote(lambda: __import__("infoflow").__file__).remote()))
print(ray.get_runtime_context().gcs_address)
"""


@needs_ray
def test_a_sweep_without_an_address_has_a_cluster_of_its_own(cluster: Any, tmp_path: Path) -> None:
    """Ray by itself joins the cluster last started on the machine, and refuses to be told how many cores to use. Its
    workers would also import an `infoflow` of the current folder, which may be a stranger's."""
    (tmp_path / "infoflow.py").write_text("raise SystemExit")
    for _ in range(3):
        call = [sys.executable, "-P", "-c", ALONE]
        alone = subprocess.run(call, capture_output=True, text=True, timeout=180, cwd=tmp_path)
        if "timed out during startup" not in alone.stderr:
            break
    assert alone.returncode == 0, alone.stderr
    found, address = alone.stdout.split()[-2:]
    assert found == infoflow.__file__
    assert address != cluster.address


@needs_ray
def test_an_unreachable_address_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="none answered"):
        fit_many(RUNS, tmp_path / "store", engine="ray", address="127.0.0.1:1")
    with pytest.raises(InfoFlowError, match="HOST:PORT"):
        fit_many(RUNS, tmp_path / "store", engine="ray", address="somewhere")
    assert not (tmp_path / "store").exists()


@needs_ray
@pytest.mark.parametrize("listener", ["web", "silent", "grpc"])
def test_something_else_at_the_address_is_one_sentence(listener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray alone waits for minutes; `auto` may name a cluster that is gone, and another program may have its port."""
    monkeypatch.setattr(engine, "ANSWER", 1.0)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with listening(listener) as port, pytest.raises(JobError, match=r"expected a Ray cluster at .*:\d+, none answered"):
        engine.connect(f"127.0.0.1:{port}")


@needs_ray
def test_auto_asks_the_cluster_that_was_started_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    with pytest.raises(JobError, match=r"127\.0\.0\.1:1, none answered"):
        engine.connect("auto")


@contextmanager
def listening(kind: str) -> Iterator[int]:
    """The port of a web server, of a socket that never says a word, or of a gRPC server that is not Ray's."""
    if kind == "grpc":
        import grpc

        server = grpc.server(ThreadPoolExecutor(1))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield port
        server.stop(None).wait()
    elif kind == "web":
        with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as web:
            threading.Thread(target=web.serve_forever).start()
            yield web.server_port
            web.shutdown()
    else:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            yield silent.getsockname()[1]


class Counting:
    """As much of Ray as the waiting needs: tasks end in the order in which they began; every look is counted."""

    def __init__(self) -> None:
        self.looked = self.most = 0

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4.0}

    def wait(self, tasks: list[int], timeout: float) -> tuple[list[int], list[int]]:
        self.looked, self.most = self.looked + len(tasks), max(self.most, len(tasks))
        return tasks[:1], tasks[1:]

    def get(self, task: int) -> tuple[list[Any], str | None]:
        return [], "it failed" if task < 0 else None

    def cancel(self, task: int) -> None: ...


def test_waiting_for_a_sweep_costs_as_much_as_it_has_tasks() -> None:
    """A look at all that is left, one for every task, would cost their square."""
    window = engine.AHEAD + 2 * 4
    for count in (1000, 4000):
        ray = Counting()
        engine._collect(ray, iter(range(count)), lambda _: None, Stop(), None)  # type: ignore[arg-type]
        assert ray.most <= window
        assert ray.looked <= window * count
    with pytest.raises(JobError, match="it failed"):
        engine._collect(Counting(), iter([1, -1, 2]), lambda _: None, Stop(), None)  # type: ignore[arg-type]


SWEEP = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born deaf to it
folder, engine, epochs = sys.argv[1:]
from infoflow.architecture import Architecture
from infoflow.targets import pairwise_max
from infoflow.train import plan
from infoflow.train.fit import Recipe, Run, fit_many
plan.SAVE_EVERY = 0.0  # a checkpoint after every step
recipe = Recipe(samples=16, validation=8, batch=4, epochs=int(epochs), dtype="float64", rollback=1.001)
target = pairwise_max(D=1, d=2, seed=0)
arches = [Architecture((1, 1), (2, 2), 3), Architecture((2, 1), (2, 2), 3)]
runs = [Run(target, arch, 3, seed, recipe) for arch in arches for seed in range(3)]
print("ready", flush=True)
results = fit_many(runs, folder, engine=engine)
print(json.dumps([[result.key, result.rollbacks, result.curve] for result in results]))
"""


def test_kill_9_at_three_random_moments(tmp_path: Path) -> None:
    """A sweep killed three times ends with the numbers of an unbroken one."""
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP)
    command, how = [sys.executable, str(script)], ["local", "12"]
    began = time.monotonic()
    unbroken = subprocess.run(
        [*command, str(tmp_path / "a"), *how], capture_output=True, text=True, timeout=120, check=True
    )
    took = time.monotonic() - began
    moments = random.Random(0)
    progress = []
    for _ in range(3):
        process = subprocess.Popen([*command, str(tmp_path / "b"), *how], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(moments.uniform(0.02, 0.25) * took)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        held = checkpoint.find(tmp_path / "b" / "checkpoints", {key for key, _, _ in _rows(unbroken.stdout)})
        progress.append(len(Store(tmp_path / "b").keys()) + sum(saved.step for saved in held))
    last = subprocess.run(
        [*command, str(tmp_path / "b"), *how], capture_output=True, text=True, timeout=120, check=True
    )
    assert _rows(last.stdout) == _rows(unbroken.stdout)
    assert any(rollbacks for _, rollbacks, _ in _rows(last.stdout))  # a model's way back is part of its state
    assert any(progress)


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=needs_ray)])
def test_ctrl_c_leaves_a_store_that_goes_on(tmp_path: Path, engine: str) -> None:
    script, store = tmp_path / "sweep.py", tmp_path / "b"
    script.write_text(SWEEP)
    command, here = [sys.executable, str(script)], ["local", "24"]
    unbroken = subprocess.run(
        [*command, str(tmp_path / "a"), *here], capture_output=True, text=True, timeout=120, check=True
    )
    process = subprocess.Popen(
        [*command, str(store), engine, "24"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not list(store.glob("checkpoints/[!.]*.safetensors")):  # whole, not on its way
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    if engine == "ray" and "timed out during startup" in said:
        pytest.skip("Ray could not start a node within 30 s")
    assert process.returncode != 0
    assert "KeyboardInterrupt" in said
    keys = {key for key, _, _ in _rows(unbroken.stdout)}
    assert len(Store(store).keys()) < len(keys)
    assert checkpoint.find(store / "checkpoints", keys)
    last = subprocess.run([*command, str(store), *here], capture_output=True, text=True, timeout=120, check=True)
    assert _rows(last.stdout) == _rows(unbroken.stdout)


def _rows(text: str) -> list[list[object]]:
    rows: list[list[object]] = json.loads(text.splitlines()[-1])
    return rows
