"""The server against strangers: foreign pages, hostile bodies, absurd sizes, files of others, jobs that must end."""

import asyncio
import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infoflow.cli import ending_of
from infoflow.errors import InfoFlowError, JobError
from infoflow.web.guard import LARGEST_BODY
from infoflow.web.lanes import MOST_WAITING, Lane, Unanswered
from infoflow.web.questions import read
from infoflow.web.serving import run
from infoflow.web.verbs import VERBS, Verb
from infoflow.web.worker import answered

JSON = {"content-type": "application/json"}
TRACE = {"target": "min_pair:d=2", "arch": "heads=1,1 embed=4", "T": 4}


class Client:
    """Requests as they are, without a library that puts them right."""

    def __init__(self, address: str) -> None:
        self.place = urlsplit(address).netloc
        self.connection = http.client.HTTPConnection(self.place, timeout=60)

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] = JSON, **more: Any) -> Any:
        self.connection.request(method, path, body, headers, **more)
        answer = self.connection.getresponse()
        data = answer.read()
        self.headers = answer.headers
        return answer.status, data

    def ask(self, verb: str, question: Any) -> tuple[int, Any]:
        status, data = self.send("POST", f"/api/{verb}", json.dumps(question))
        return status, json.loads(data)


@pytest.fixture(scope="module")
def client(explorer: str) -> Any:
    found = Client(explorer)
    yield found
    found.connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:80"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_foreign_hosts_and_origins_are_refused(client: Client, headers: dict[str, str], status: int) -> None:
    for method, path in (("GET", "/"), ("GET", "/assets/main.js"), ("POST", "/api/trace")):
        assert client.send(method, path, json.dumps(TRACE), JSON | headers)[0] == status


@pytest.mark.parametrize("host", ["", "0", "0.0.0.0", "0x0", "::"])
def test_every_address_is_listened_on_only_with_a_name(host: str, tmp_path: Path) -> None:
    """However it is spelled: an empty name would have been every address, without a word."""
    with pytest.raises((InfoFlowError, JobError), match=r"--name NAME|could not") as said:
        run(tmp_path, host, 0)
    assert host not in ("", "0", "0.0.0.0") or "--name NAME" in str(said.value)


@pytest.mark.parametrize("host", ["a\0b", "é" * 100, "no.such.host.invalid"])
def test_a_host_that_is_none_is_one_sentence(host: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="to listen on"):
        run(tmp_path, host, 0)


def test_its_own_page_is_answered_and_kept_to_itself(client: Client) -> None:
    own = JSON | {"origin": f"http://{client.place}", "sec-fetch-site": "same-origin"}
    assert client.send("POST", "/api/trace", json.dumps(TRACE), own)[0] == 200
    assert client.send("GET", "/")[0] == 200
    assert "script-src 'self'" in client.headers["content-security-policy"]
    assert "access-control-allow-origin" not in client.headers


@pytest.mark.parametrize(
    "path",
    ["/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/..%2fapp.py", "/assets//etc/passwd", "/assets/%00", "/x",
     "/assets/views", "/api/__class__", "/api/../app.py"],
)  # fmt: skip
def test_nothing_but_the_page_is_read(client: Client, path: str) -> None:
    status, data = client.send("GET", path)
    assert status in (404, 405)
    assert b"Starlette" not in data
    assert b"root:" not in data


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {}, 415),
        (b"x" * (LARGEST_BODY + 1), JSON, 413),
        (b"\xff\xfe", JSON, 400),
        (b"", JSON, 400),
        (b"[" * 60000, JSON, 400),
        (b'{"target": NaN}', JSON, 400),
        (b"null", JSON, 400),
        (b'{"target": "min_pair", "arch": "heads=1", "T": 1e999}', JSON, 400),
        (b'{"target": "min_pair", "arch": "heads=1", "T": ' + b"9" * 5000 + b"}", JSON, 400),
        (b'{"target": "min_pair", "arch": "heads=1", "T": true}', JSON, 400),
        (b'{"target": "min_pair", "arch": "heads=1", "T": 4, "__class__": 1}', JSON, 400),
    ],
)
def test_bodies_that_are_no_question(client: Client, body: bytes, headers: dict[str, str], status: int) -> None:
    found, data = client.send("POST", "/api/trace", body, headers)
    assert found == status
    assert json.loads(data)["error"].endswith((".", "?"))


def test_a_long_body_in_pieces_is_counted(client: Client, explorer: str) -> None:
    fresh = Client(explorer)
    status, _ = fresh.send("POST", "/api/trace", iter([b" " * 4096] * 40), JSON, encode_chunked=False)
    fresh.connection.close()
    assert status == 413


@pytest.mark.parametrize(
    "question",
    [
        {"target": "min_pairs", "arch": "heads=1,1 embed=4", "T": 4},
        {"target": "min_pair:d=0", "arch": "heads=1,1 embed=4", "T": 4},
        {"target": "min_pair", "arch": "heads=0", "T": 4},
        {"target": "min_pair", "arch": "heads=2 embed=3", "T": 4},
        {"target": "min_pair", "arch": "hedas=2", "T": 4},
        {"target": "kth_largest:k=9", "arch": "heads=1,1 embed=4", "T": 4},
    ],
)
def test_a_wrong_call_has_the_sentence_of_the_command_line(client: Client, question: Any) -> None:
    from infoflow.cli import cli

    words = ["trace", question["target"], *question["arch"].split(), "-T", str(question["T"])]
    with pytest.raises(InfoFlowError) as caught:
        cli.main(args=words, prog_name="infoflow", standalone_mode=False)
    ending = ending_of(caught.value)
    assert ending is not None
    assert client.ask("trace", question) == (400, {"error": ending[0]})


def test_code_is_never_loaded_from_a_request(client: Client, tmp_path: Path) -> None:
    mark, file = tmp_path / "ran", tmp_path / "mine.py"
    file.write_text(f"open({str(mark)!r}, 'w').close()\nF = 1\n", encoding="utf-8")
    for verb in ("trace", "predict", "plan", "forecast", "build", "refute"):
        question = {"target": f"{file}:F", "T": 4} | ({} if verb in ("plan", "build") else {"arch": "heads=1 embed=4"})
        status, data = client.send("POST", f"/api/{verb}", json.dumps(question))
        assert b"code is run only" in data
        assert status == (200 if verb == "refute" else 400)  # a stream has begun before it is refused
    assert client.ask("predict", {"target": "min_pair", "arch": f"hf:{file}", "T": 4})[0] == 400
    assert not mark.exists()


def test_only_probes_of_the_chosen_folder_are_shown(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "one").mkdir(parents=True)
    (inside / ".hidden").mkdir()
    (inside / "bad").mkdir()
    outside.mkdir()
    head = {"layer": 1, "head": 1, "label": "max", "scores": {"max": 0.9}, "stability": 1.0}
    good = json.dumps({"model": "mine", "heads": [head], "interventions": None})
    for place in (inside / "one", inside / ".hidden", outside):
        (place / "probe.json").write_text(good, encoding="utf-8")
    (inside / "bad" / "probe.json").write_text('{"heads": [{"layer": "x"}]}', encoding="utf-8")
    os.symlink(outside, inside / "link")
    (inside / "two").mkdir()
    os.symlink(outside / "probe.json", inside / "two" / "probe.json")
    found = answered("heads", {}, inside)["answer"]
    assert [m["id"] for m in found["models"] if "/" in m["id"]] == ["bad/probe.json", "one/probe.json"]
    assert answered("heads", {"model": "one/probe.json"}, inside)["answer"]["model"] == "mine"
    for wrong in (
        "../outside/probe.json",
        str(outside / "probe.json"),
        "link/probe.json",
        "two/probe.json",
        "/etc/passwd",
    ):
        assert answered("heads", {"model": wrong}, inside)["status"] == 400
    refused = answered("heads", {"model": "bad/probe.json"}, inside)
    assert refused["status"] == 400
    assert refused["error"].startswith("expected what infoflow probe writes")


COST = {"scope": "head", "layer": 1, "head": 1, "mode": "max", "cost": 0.1, "interval": [0.0, 0.2]}


@pytest.mark.parametrize(
    "forced",
    [5, "x", [5], {"base": 5}, {"base": {"loss": "x"}}, {"costs": 5}, {"costs": [5]}, {"costs": [{}]},
     *({"costs": [{**COST, **each}]} for each in ({"cost": "x"}, {"layer": []}, {"interval": 5}, {"cost": 10**400}))],
)  # fmt: skip
def test_a_probe_of_other_values_is_one_sentence(tmp_path: Path, forced: Any) -> None:
    head = {"layer": 1, "head": 1, "label": "max", "scores": {"max": 0.9}, "stability": 1.0}
    path, asked = tmp_path / "probe.json", {"model": "probe.json"}
    path.write_text(json.dumps({"heads": [head], "interventions": {"costs": [COST], "base": {"loss": 1.0}}}))
    assert answered("heads", asked, tmp_path)["answer"]["costs"] == [COST]
    path.write_text(json.dumps({"heads": [head], "interventions": forced}))
    assert answered("heads", asked, tmp_path)["error"].startswith("expected what infoflow probe writes")


def ask(lane: Lane, verb: str, question: Any, seconds: float = 30.0) -> Any:
    return lane.ask(verb, question, seconds)


def test_a_question_that_takes_too_long_is_ended_and_the_next_is_answered(tmp_path: Path, finished: Any) -> None:
    async def run() -> None:
        lane = Lane("quick", 1, tmp_path)
        with pytest.raises(Unanswered, match="expected an answer within") as caught:
            await ask(lane, "plan", {"target": "chain:length=6", "T": 64, "max_layers": 8, "max_heads": 16}, 0.01)
        assert caught.value.status == 504
        assert (await ask(lane, "trace", TRACE))["learns"]
        await lane.close()

    finished(run())


def test_a_client_that_goes_ends_its_job(tmp_path: Path, finished: Any) -> None:
    async def run() -> None:
        lane = Lane("quick", 1, tmp_path)
        await ask(lane, "trace", TRACE)
        (worker,) = lane.all
        job = asyncio.ensure_future(ask(lane, "plan", {"target": "chain:length=6", "T": 64, "max_layers": 8}))
        await asyncio.sleep(0)
        while lane.idle:
            await asyncio.sleep(0)
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
        assert await worker.wait() < 0
        assert (await ask(lane, "trace", TRACE))["learns"]
        await lane.close()

    finished(run())


def test_too_many_that_wait_are_told_so(tmp_path: Path, finished: Any) -> None:
    async def run() -> None:
        lane = Lane("quick", 1, tmp_path)
        lane.waiting = MOST_WAITING
        with pytest.raises(Unanswered, match="too many") as caught:
            await ask(lane, "trace", TRACE)
        assert caught.value.status == 503

    finished(run())


def test_a_worker_without_memory_answers_in_a_sentence(tmp_path: Path) -> None:
    """600 MiB of address space: numpy lives in it, ten thousand by ten thousand numbers do not."""
    command = [sys.executable, "-m", "infoflow.web.worker", str(600 << 20), str(tmp_path), "quick"]
    large = {"verb": "predict", "question": {"target": "sum_of_maxima:D=9000,d=9000", "arch": "heads=1", "T": 4}}
    asked = "\n".join(map(json.dumps, [large, {"verb": "trace", "question": TRACE}])) + "\n"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, input=asked, capture_output=True, text=True, env=environment, check=False)
    ready, refused, found = map(json.loads, done.stdout.splitlines())
    assert ready == {"ready": True}
    assert refused["status"] == 400
    assert "memory" in refused["error"]
    assert found["answer"]["learns"]


ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e\n<script>"


def fault(question: Any) -> None:
    """Fails as no answer of ours should, with words of a stranger in the message."""
    raise LookupError(ESCAPE)


def test_no_answer_of_a_worker_is_obeyed_by_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the sentence of a refusal nor what the terminal is told of a fault holds control characters."""
    (tmp_path / ESCAPE).mkdir()
    (tmp_path / ESCAPE / "probe.json").write_text("[")
    asked = [
        *((verb, {**TRACE, name: ESCAPE}) for verb in ("trace", "predict") for name in ("target", "arch", ESCAPE)),
        ("heads", {"model": ESCAPE}),
        ("lab", {ESCAPE: ESCAPE}),
    ]
    for verb, question in asked:
        found = answered(verb, question, tmp_path)
        assert found["status"] == 400
        assert found["error"].isprintable()
    monkeypatch.setitem(VERBS, "fault", Verb(VERBS["trace"].question, f"{__name__}:fault"))
    found = answered("fault", TRACE, tmp_path)
    assert found["status"] == 500
    assert "owned" not in found["error"]
    said = capfd.readouterr().err
    assert "owned" in said
    assert said.removesuffix("\n").isprintable()


SPELLINGS = st.one_of(
    st.sampled_from(["min_pair:d=2", "max_plus_min", "kth_largest:k=2,d=1", "position_sum:positions=1..3,d=2"]),
    st.text(max_size=40),
    st.builds("{}:d={},D={}".format, st.sampled_from(["pairwise_max", "star", "recall", "d_retrieval"]),
              st.integers(-2, 3), st.integers(-2, 3)),
)  # fmt: skip
ARCHES = st.one_of(
    st.sampled_from(["heads=1,1 embed=4", "heads=2 embed=2 mask=causal", "heads=1"]), st.text(max_size=30)
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
ROWS = st.lists(st.lists(st.floats(-1e300, 1e300), max_size=3), max_size=5)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "target": SPELLINGS | ANY,
        "arch": ARCHES | ANY,
        "T": st.integers(-1, 80) | ANY,
        "tokens": ROWS | ANY,
        "seed": st.integers(-1, 2**70) | ANY,
        "eps": st.floats(allow_nan=False, allow_infinity=False) | ANY,
        "ties": st.sampled_from(["first", "last", "all", "none"]),
        "model": st.text(max_size=30),
        "max_layers": st.integers(-1, 9),
        "max_heads": st.integers(-1, 17),
    },
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(verb=st.sampled_from(["trace", "predict", "plan", "heads", "targets"]), data=st.data())
def test_whatever_is_asked_the_answer_is_an_answer_or_a_sentence(client: Client, verb: str, data: Any) -> None:
    known = {"target", "arch", "T"} | set(VERBS[verb].question.__dataclass_fields__)
    question = data.draw(FIELDS.map(lambda fields: {k: v for k, v in fields.items() if k in known}) | ANY)
    status, found = client.ask(verb, question)
    assert status in (200, 400, 504), (question, found)
    assert status == 200 or (isinstance(found["error"], str) and "\n" not in found["error"])


@settings(max_examples=200, deadline=None)
@given(verb=st.sampled_from(sorted(VERBS)), payload=ANY | FIELDS)
def test_every_question_is_read_or_refused(verb: str, payload: Any) -> None:
    try:
        question = read(VERBS[verb].question, payload)
    except InfoFlowError:
        return
    assert isinstance(question, VERBS[verb].question)


def test_the_listing_has_a_schema_for_every_verb(client: Client) -> None:
    status, data = client.send("GET", "/api")
    listed = json.loads(data)["verbs"]
    assert status == 200
    assert listed.keys() == VERBS.keys()
    assert listed["trace"]["question"]["required"] == ["target", "arch"]


def test_workers_end_with_the_explorer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infoflow", "serve", "--port", "0", "--folder", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert server.stdout is not None
    address = server.stdout.readline().split()[4]
    client = Client(address)
    assert client.ask("trace", TRACE)[0] == 200
    client.connection.close()
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    if not children.is_file():
        pytest.skip("this system does not list the children of a process")
    workers = children.read_text(encoding="ascii").split()
    assert workers
    server.terminate()
    server.wait(30)
    server.stdout.close()
    for _ in range(200):
        alive = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
        if not alive:
            return
        time.sleep(0.05)
    raise AssertionError(f"workers {alive} outlived the explorer")
