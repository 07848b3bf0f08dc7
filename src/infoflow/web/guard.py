"""Who may ask: the page itself, on this machine. Everything else is turned away before it is read.

A page of a stranger, open in the same browser, can send requests to 127.0.0.1. It cannot change the Host header (which
also stops a name of its own that resolves to 127.0.0.1), and the browser names it as Origin.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 64 << 10  # bytes of a question
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class TooLarge(Exception):
    """The body of a request is longer than any question."""


class Guard:
    """Refuses foreign hosts and origins and long bodies; adds the headers that keep the page to itself.

    `hosts` are the names, with their port, under which the page is reached."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._refusal(Headers(scope=scope))
        if refusal is not None:
            await refusal(scope, receive, _guarded(send))
            return
        await self.app(scope, _counted(receive), _guarded(send))

    def _refusal(self, headers: Headers) -> JSONResponse | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return sentence("expected a request to this explorer's own address, got another host.", 421)
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return sentence("expected a request of the explorer's own page, got another origin.", 403)
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return sentence("expected a request of the explorer's own page, got one of another site.", 403)
        stated = headers.get("content-length", "0")
        if not stated.isdecimal() or int(stated) > LARGEST_BODY:
            return sentence(f"expected a question of at most {LARGEST_BODY} bytes, got a longer one.", 413)
        return None


def sentence(words: str, status: int) -> JSONResponse:
    """One sentence as the answer, with its status."""
    return JSONResponse({"error": words}, status)


def _counted(receive: Receive) -> Receive:
    """A body sent in pieces states no length: it is counted."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > LARGEST_BODY:
            raise TooLarge
        return message

    return counted


def _guarded(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return guarded
