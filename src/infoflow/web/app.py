"""The application: the page, its files, and one endpoint per verb, `POST /api/VERB` with a JSON object."""

import asyncio
import base64
import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from infoflow.cost import cores
from infoflow.errors import InfoFlowError, unknown
from infoflow.reading import parsed
from infoflow.web.guard import LARGEST_BODY, Guard, TooLarge, sentence
from infoflow.web.lanes import Lane, Unanswered
from infoflow.web.questions import read, schema
from infoflow.web.verbs import VERBS, Verb

ASSETS = Path(str(files("infoflow.web"))) / "assets"
BODY_SECONDS = 10.0  # for the body of a question to arrive
KEPT_BYTES = 64 << 20  # of answers that are kept
SMALL_ANSWER = 4 << 20  # bytes; a larger one is not kept


class Explorer:
    """The state of a running explorer: the lanes, and the answers that are kept (the longest unused go first)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.kept: OrderedDict[str, bytes] = OrderedDict()
        self.size = 0

    def open(self) -> None:
        self.lanes = {"quick": Lane("quick", max(2, cores()), self.folder), "long": Lane("long", 2, self.folder)}

    async def close(self) -> None:
        await asyncio.gather(*(lane.close() for lane in self.lanes.values()))

    async def answer(self, name: str, question: dict[str, Any]) -> bytes:
        verb, key = VERBS[name], json.dumps([name, question], sort_keys=True)
        if key in self.kept:
            self.kept.move_to_end(key)
            return self.kept[key]
        found = json.dumps(await self.lanes[verb.lane].ask(name, question, verb.seconds)).encode()
        if verb.kept and len(found) <= SMALL_ANSWER and key not in self.kept:
            self.kept[key] = found
            self.size += len(found)
            while self.size > KEPT_BYTES:
                self.size -= len(self.kept.popitem(last=False)[1])
        return found


def create_app(folder: Path, hosts: frozenset[str]) -> Starlette:
    """The explorer for the files of `folder`, reached under the names (with port) in `hosts`."""
    explorer = Explorer(folder)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        explorer.open()
        warming = [asyncio.ensure_future(lane.warm()) for lane in explorer.lanes.values()]
        yield
        for task in warming:
            task.cancel()
        await explorer.close()

    async def ask(request: Request) -> Response:
        return await _asked(explorer, request)

    return Starlette(
        routes=[
            Route("/", _page, methods=["GET"]),
            Route("/api", _listing, methods=["GET"]),
            Route("/api/{verb}", ask, methods=["POST"]),
            Mount("/assets", StaticFiles(directory=ASSETS)),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={404: _missing, 405: _missing, 500: _fault},
        lifespan=life,
    )


async def _page(request: Request) -> Response:
    return FileResponse(ASSETS / "index.html", headers={"cache-control": "no-cache"})


async def _listing(request: Request) -> Response:
    """Every verb with the JSON Schema of its question."""
    verbs = {name: {"about": (verb.question.__doc__ or "").strip(), "question": schema(verb.question),
                    "seconds": verb.seconds, "streams": verb.streams} for name, verb in VERBS.items()}  # fmt: skip
    return JSONResponse({"verbs": verbs})


async def _missing(request: Request, error: Exception) -> Response:
    return sentence("expected the page, /assets/ or POST /api/VERB, got another address or method.",
                    getattr(error, "status_code", 404))  # fmt: skip


async def _fault(request: Request, error: Exception) -> Response:
    return sentence("this request failed, which is a fault of ours; the terminal says more.", 500)


async def _asked(explorer: Explorer, request: Request) -> Response:
    try:
        name = request.path_params["verb"]
        if name not in VERBS:
            return sentence(str(unknown("verb", name, list(VERBS))), 404)
        verb, question = VERBS[name], await _question(request, name)
        if verb.streams:
            return StreamingResponse(_stream(explorer, name, verb, question), media_type="text/event-stream",
                                     headers={"cache-control": "no-store"})  # fmt: skip
        work = asyncio.ensure_future(explorer.answer(name, question))
        found = await (work if verb.lane == "quick" else _while_connected(work, request))
    except Unanswered as refused:
        return sentence(refused.sentence, refused.status)
    except InfoFlowError as error:
        return sentence(str(error), 400)
    except ClientDisconnect:
        return sentence("the client has gone before its question was whole.", 499)
    except TooLarge:
        return sentence(f"expected a question of at most {LARGEST_BODY} bytes, got a longer one.", 413)
    except TimeoutError:
        return sentence(f"expected the question within {BODY_SECONDS:g} s, it did not arrive.", 408)
    if name == "network":
        return _file(json.loads(found))
    return Response(found, media_type="application/json", headers={"cache-control": "no-store"})


async def _question(request: Request, name: str) -> dict[str, Any]:
    """The question, checked here already, so that a wrong one takes no worker's time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Unanswered(f"expected a question of type application/json, got {kind[:60]!r}.", 415)
    async with asyncio.timeout(BODY_SECONDS):
        body = await request.body()
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise InfoFlowError("expected a question in UTF-8, got other bytes.") from None
    return asdict(read(VERBS[name].question, parsed(text, "a question", LARGEST_BODY)))


async def _while_connected(work: "asyncio.Future[bytes]", request: Request) -> bytes:
    """The answer of a long job; a client that goes away ends it."""
    gone = asyncio.ensure_future(_gone(request))
    try:
        both: set[asyncio.Future[Any]] = {work, gone}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Unanswered("the client has gone; the job was ended.", 499)
        return work.result()
    finally:
        gone.cancel()
        work.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stream(explorer: Explorer, name: str, verb: Verb, question: dict[str, Any]) -> AsyncIterator[bytes]:
    """Server-sent events: `progress` any number of times, then `answer` or `error`. Closing the stream ends the job."""
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue(64)
    work = asyncio.ensure_future(explorer.lanes[verb.lane].ask(name, question, verb.seconds, events.put))
    try:
        while not (work.done() and events.empty()):
            waiting = asyncio.ensure_future(events.get())
            await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                yield _event("progress", waiting.result())
            else:
                waiting.cancel()
        try:
            yield _event("answer", work.result())
        except Unanswered as refused:
            yield _event("error", {"error": refused.sentence})
    finally:
        work.cancel()


def _event(kind: str, data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def _file(found: dict[str, str]) -> Response:
    return Response(
        base64.b64decode(found["data"]),
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{found["name"]}"', "cache-control": "no-store"},
    )
