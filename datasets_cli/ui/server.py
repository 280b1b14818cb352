"""Serving the page: an address is bound, a thread answers, and its owner waits or closes it."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import secrets
import socket
import sys
import threading
import webbrowser
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from datasets_cli.config import RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_numbers, takes_fields
from datasets_cli.core.system_errors import import_optional
from datasets_cli.errors import RldsError, UsageError, argument, wrong_value
from datasets_cli.verbs.info import dataset_info

if TYPE_CHECKING:
    import uvicorn

    from datasets_cli.ui.guard import Guard

LARGEST_PORT = 65_535
MOST_CONNECTIONS = 200
SECONDS_TO_END = 0.5
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


@dataclass(frozen=True)
class PageCall(RootOptions):
    """The arguments of ``serve_page``.

    Args:
        id: the first dataset to show, installed or not; the catalogue by default.
        port: the port; 0 for a free one.
        host: the host name or address to listen on.
        browser: whether to open a browser on a desktop.
        allow_remote: allow a ``host`` that other machines can reach.
    """

    id: str | None = field(default=None, metadata={"typed": None})
    _: KW_ONLY
    port: int = field(
        default=0, metadata={"least": 0, "help": "Port to listen on; 0 chooses a free one."}
    )
    host: str = field(
        default="127.0.0.1",
        metadata={"metavar": "HOST", "help": "Host name or address to listen on."},
    )
    browser: bool = field(
        default=True,
        metadata={"flag": "--no-browser", "help": "Print the address without opening a browser."},
    )
    allow_remote: bool = field(
        default=False, metadata={"help": "Allow a --host that other machines can reach."}
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.port > LARGEST_PORT:
            raise wrong_value("port", f"at most {LARGEST_PORT}", self.port)


@takes_fields(PageCall)
def serve_page(call: PageCall) -> ServedPage:
    """Show datasets in a browser: begin to answer at an address, and return it.

    The page only reads, and answers who has the token that the address ends with. It answers until
    it is closed, or the process ends: ``with serve_page() as page: page.wait()``.

    Raises:
        UnknownDataset: no recipe and no folder has that name.
        UsageError: the port is in use, ``host`` is not of this machine or is reached by others
            without ``allow_remote``, or starlette, uvicorn or jinja2 is not installed.
    """
    import_optional("starlette", "The page", "ui")
    import_optional("uvicorn", "The page", "ui")
    import_optional("jinja2", "The page", "ui")
    from datasets_cli.ui.application import application
    from datasets_cli.ui.guard import Guard
    from datasets_cli.ui.local_page import LocalPage

    config = call.chosen_config()
    path = "/" if call.id is None else f"/d/{dataset_info(call.id, config=config).id}"
    bound = _bound(call)
    address = BoundAddress(call.host, bound.getsockname()[1], bound.getsockname()[0])
    token = secrets.token_urlsafe(32)
    guard = Guard(application(LocalPage.of(config)), address.is_host, address.port, token)
    served = ServedPage(f"{address.url}{path}?token={token}", address, bound, guard)
    if call.browser and _has_desktop():
        webbrowser.open(f"{address.url}{path}?token={guard.ticket()}")
    return served


@dataclass(frozen=True)
class BoundAddress:
    """Where the page answers: the host as it was asked for, its port, and the number bound."""

    host: str
    port: int
    number: str

    @property
    def is_any(self) -> bool:
        """Whether it is every address of this machine."""
        return ipaddress.ip_address(self.number.partition("%")[0]).is_unspecified

    @property
    def name(self) -> str:
        """The host as an address in a browser has it."""
        host = socket.gethostname() if self.is_any else self.host
        return f"[{host}]" if ":" in host else host

    @property
    def url(self) -> str:
        """The address of the page, without what follows the port."""
        return f"http://{self.name}:{self.port}"

    def is_host(self, text: str) -> bool:
        """Return whether a request names this address, so that no other name leads here."""
        name, _, port = text.rpartition(":") if text[-1:] != "]" else (text, "", "")
        own = self.name.lower()
        if (name, port) == (own, str(self.port)) or (self.port == 80 and text == own):
            return True
        # Names lead anywhere; a number is the machine itself.
        return self.is_any and port == str(self.port) and _is_number(name.strip("[]"))


class ServedPage(JsonForm):
    """A page that is served at an address until it is closed.

    Attributes:
        address: the URL of the page, which ends with the token of this run.
        readers: a sentence about the people who can read it.
    """

    JSON = "address readers"

    def __init__(
        self, address: str, place: BoundAddress, bound: socket.socket, guard: Guard
    ) -> None:
        self.address = address
        where = f"from every machine that reaches {place.name}; the connection is not encrypted"
        where = "on this machine alone" if _is_loopback(place.number) else where
        self.readers = f"Whoever has this address can read all of the cache root, {where}."
        self._server = _server(guard)
        # A daemon, and so are the threads that it starts: none outlives an interrupt.
        self._thread = threading.Thread(target=self._server.run, args=([bound],), daemon=True)
        self._thread.start()

    def __enter__(self) -> ServedPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Return when the server has stopped; interrupts are raised while waiting."""
        self._thread.join()
        if not self._server.should_exit:
            raise RldsError("The server stopped unexpectedly.", advice="Run the command again.")

    def close(self) -> None:
        """Stop the server and drop open requests."""
        self._server.should_exit = True
        self._thread.join(SECONDS_TO_END)


def _server(guard: Guard) -> uvicorn.Server:
    import uvicorn

    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return uvicorn.Server(
        uvicorn.Config(
            guard,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
        )
    )


def _bound(call: PageCall) -> socket.socket:
    """Return a socket that listens at the requested address."""
    try:
        known = socket.getaddrinfo(call.host, call.port, type=socket.SOCK_STREAM)
        family, _, _, _, place = known[0]
    except (socket.gaierror, UnicodeError) as error:
        raise UsageError(
            f"{argument('host', call.host)} cannot be resolved ({error}).",
            argument="host",
            found=call.host,
        ) from error
    if not (call.allow_remote or _is_loopback(str(place[0]))):
        raise UsageError(
            f"{argument('host', call.host)} is reachable from other machines, without encryption: "
            "anyone with the address and its token could read every dataset.",
            argument="host",
            found=call.host,
            advice=f"Add {argument('allow_remote', 'True')} to allow it.",
        )
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(place)
        bound.listen()
    except OSError as error:
        bound.close()
        raise _not_bound(error, call, family, place) from error
    return bound


def _not_bound(error: OSError, call: PageCall, family: int, place: Any) -> UsageError:
    what = argument("port", str(call.port))
    if error.errno == errno.EADDRINUSE:
        others = (*range(call.port + 1, LARGEST_PORT + 1), 0)
        free = next(port for port in others if _is_free(family, place, port))
        return UsageError(
            f"{what} is in use.",
            argument="port",
            found=call.port,
            advice=f"{argument('port', str(free))} is free.",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return UsageError(
            f"{argument('host', call.host)} is not an address of this machine.",
            argument="host",
            found=call.host,
        )
    return UsageError(
        f"{what} cannot be used ({error.strerror}).",
        argument="port",
        found=call.port,
        advice=f"Try {argument('port', '0')}.",
    )


def _is_free(family: int, place: Any, port: int) -> bool:
    """Return whether a port can be bound, as 0 always can."""
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((place[0], port, *place[2:]))
        except OSError:
            return False
        return True


def _is_number(text: str) -> bool:
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return False


def _is_loopback(number: str) -> bool:
    return ipaddress.ip_address(number.partition("%")[0]).is_loopback


def _has_desktop() -> bool:
    """Return whether a browser would have a window: another one would take this terminal."""
    return sys.platform == "darwin" or not os.environ.keys().isdisjoint(DISPLAYS)
