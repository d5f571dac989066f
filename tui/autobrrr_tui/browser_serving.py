"""Serves a verb's screen to browsers on this machine; needs the extra `web`.

Only pages that this server itself has sent may connect: a page from elsewhere that a browser has open
could otherwise press keys. And only programs of the same user, or of root: every user of the machine
reaches its ports.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web
from textual_serve.server import Server

HOST = "localhost"
ESTABLISHED = "01"  # as /proc/net/tcp writes it
WEB = Path(__file__).parent / "web"


class LocalServer(Server):
    """One process of the command for every page; bound to this machine."""

    def __init__(self, command: str, port: int) -> None:
        super().__init__(command, host=HOST, port=port, title="autobrrr", templates_path=WEB)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """A page connects."""
        if not is_own_page(request.headers.get("Origin"), request.headers.get("Host"), self.port):
            raise web.HTTPForbidden(text="only pages of this server may connect")
        link = request.get_extra_info("socket")
        if link is None or user_of(link.getpeername(), link.getsockname()) not in allowed_users(os.environ):
            raise web.HTTPForbidden(text="only programs of the user who started this server may connect")
        return await super().handle_websocket(request)


def is_own_page(origin: str | None, host: str | None, port: int) -> bool:
    """Whether a connection comes from a page of this server, by the name it was sent under."""
    own = {f"{HOST}:{port}"} | ({HOST} if port == 80 else set())
    return host in own and origin is not None and origin.removeprefix("http://") in own


def allowed_users(environ: Mapping[str, str]) -> set[int]:
    """Root, who runs this, and who became root by sudo: his browser shows what he started."""
    by_sudo = environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return {0, os.geteuid()} | ({int(by_sudo)} if by_sudo.isdecimal() else set())


def user_of(theirs: tuple[str, int], ours: tuple[str, int]) -> int | None:
    """Whose socket of this machine is at the other end, as the kernel knows it; None where it is closed.

    Of a socket that is being closed the kernel names root.
    """
    table = Path("/proc/net/tcp6" if ":" in theirs[0] else "/proc/net/tcp")
    wanted = [_end(theirs), _end(ours), ESTABLISHED]
    rows = map(str.split, table.read_text(encoding="ascii").splitlines())
    return next((int(row[7]) for row in rows if row[1:4] == wanted), None)


def _end(place: tuple[str, int]) -> str:
    """An address and a port as the kernel writes them: each 32 bits in its own order."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in place[0] else socket.AF_INET, place[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return f"{''.join(f'{word:08X}' for word in words)}:{place[1]:04X}"
