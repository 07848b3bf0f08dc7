"""Listen: on 127.0.0.1 unless told otherwise, until Ctrl-C."""

import socket
from collections.abc import Callable
from pathlib import Path

from infoflow.errors import InfoFlowError, JobError

LOCAL = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "::")  # every address of this machine
MOST_CONNECTIONS = 256
IDLE_SECONDS = 30  # that an unused connection is kept open


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(MOST_CONNECTIONS)  # who comes before the first accept waits
    except (OSError, OverflowError, TypeError, ValueError) as error:  # TypeError: a null character in the name
        found.close()
        raise JobError(f"expected to listen on {host} port {port}, could not ({error}); take another --port.") from None
    return found


def names_of(host: str, port: int, names: tuple[str, ...] = ()) -> frozenset[str]:
    """The Host headers that are answered: this machine's own, and the names the explorer was told."""
    if host in EVERYWHERE and not names:
        raise InfoFlowError(f"expected --name NAME with --host {host}: the name or address others reach it by.")
    told = {f"[{host}]" if ":" in host else host, *names, *LOCAL}
    return frozenset(f"{name.lower()}:{port}" for name in told) | (frozenset(told) if port == 80 else frozenset())


def run(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 8227,
    names: tuple[str, ...] = (),
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the explorer until it is stopped; `ready` is told the address once the socket is bound."""
    try:
        import uvicorn

        from infoflow.web.app import create_app
        from infoflow.web.patience import Patience
    except ImportError as error:
        raise InfoFlowError(
            f"expected the extra 'web' ({error.name} is not installed); install it: pip install 'infoflow[web]'."
        ) from None
    with listen(host, port) as place:
        bound, port = place.getsockname()[:2]
        host = bound if bound in EVERYWHERE else host  # an empty name, 0 and 0x0 are all addresses, too
        hosts = names_of(host, port, names)
        config = uvicorn.Config(
            create_app(folder, hosts),
            log_level="warning",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=2,
            http=Patience,
            ws="none",
            server_header=False,
            date_header=False,
        )
        ready(f"http://{'127.0.0.1' if host in EVERYWHERE else f'[{host}]' if ':' in host else host}:{port}/")
        uvicorn.Server(config).run(sockets=[place])
