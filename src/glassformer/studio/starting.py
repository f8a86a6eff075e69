"""Starting the Studio: a port, a browser, and the server until Ctrl-C."""

from __future__ import annotations

import errno
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from glassformer.errors import ConfigurationError
from glassformer.studio.guards import Endpoint
from glassformer.studio.run_pool import RunPool
from glassformer.studio.server import create_app

PORT = 8417  # unless another is asked for, or it is taken


def listen(host: str, port: int | None) -> socket.socket:
    """A socket at a host; without a port, at ours, or if that is taken at any that is free."""
    try:
        kind, *_, place = socket.getaddrinfo(host, PORT if port is None else port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(kind, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except UnicodeError:  # such as a label of more than 63 letters
        raise ConfigurationError(f"--host {host}: not the name of a host") from None
    except OSError as error:
        raise ConfigurationError(f"--host {host}: {error.strerror or error}") from None
    try:
        made.bind(place)
        made.listen()  # a port that is bound and not listened at can be bound once more
    except OSError as error:
        made.close()
        if port is None and error.errno == errno.EADDRINUSE:
            return listen(host, 0)
        raise ConfigurationError(
            f"the Studio cannot listen at {host}, port {port}: {error.strerror}; choose another --port"
        ) from None
    return made


def serve(pool: RunPool, host: str, port: int | None, show: bool, say: Callable[[str], None]) -> None:
    """Serve the Studio until Ctrl-C; with `show`, a browser opens it."""
    taken = listen(host, port)
    endpoint = Endpoint.at(host, taken.getsockname()[1])
    app = create_app(pool, endpoint)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, ws="none", timeout_graceful_shutdown=1
    )
    say(f"The Studio is at {endpoint.url}  (Ctrl-C ends it)")
    if endpoint.token is not None:
        say("Others in the network can open it with this address, and only with it: it holds a token.")
    if show:
        threading.Thread(target=lambda: webbrowser.open(endpoint.url), daemon=True).start()
    uvicorn.Server(config).run(sockets=[taken])
