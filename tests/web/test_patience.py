"""Who begins a request and does not end it is sent away; who waits for a long answer is not."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra web is not installed")

from uvicorn import Config
from uvicorn.server import ServerState

from infoflow.web import patience

WHOLE = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
SOON = 0.05


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """An answer that takes longer than a head may."""
    await asyncio.sleep(4 * SOON)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def talk(*pieces: bytes) -> bytes:
    """Everything that comes back until the connection is closed, each piece sent after an answer to the one before."""
    config, state, loop = Config(slow, log_level="error", ws="none"), ServerState(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: patience.Patience(config, state, {}, loop), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    said = b""
    for number, piece in enumerate(pieces):
        writer.write(piece)
        if number < len(pieces) - 1:
            said += await reader.readuntil(b"ok")
    said += await asyncio.wait_for(reader.read(), 60)
    writer.close()
    server.close()
    await server.wait_closed()
    return said


@pytest.mark.parametrize("pieces", [(b"",), (b"GET / HT",), (WHOLE, b"GET / HTTP/1.1\r\nX: ")])
def test_half_a_head_is_not_waited_for(
    pieces: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch, finished: Any
) -> None:
    monkeypatch.setattr(patience, "HEAD_SECONDS", SOON)
    assert finished(talk(*pieces)).count(b"200 OK") == len(pieces) - 1
