"""Serves a verb's screen to browsers on this machine; needs the extra `web`.

Only pages that this server itself has sent may connect: a page from elsewhere that a browser has open
could otherwise press keys.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web
from textual_serve.server import Server

HOST = "localhost"
WEB = Path(__file__).parent / "web"


class LocalServer(Server):
    """One process of the command for every page; bound to this machine."""

    def __init__(self, command: str, port: int) -> None:
        super().__init__(command, host=HOST, port=port, title="autobrrr", templates_path=WEB)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """A page connects."""
        if not is_own_page(request.headers.get("Origin"), request.headers.get("Host"), self.port):
            raise web.HTTPForbidden(text="only pages of this server may connect")
        return await super().handle_websocket(request)


def is_own_page(origin: str | None, host: str | None, port: int) -> bool:
    """Whether a connection comes from a page of this server, by the name it was sent under."""
    own = {f"{HOST}:{port}"} | ({HOST} if port == 80 else set())
    return host in own and origin is not None and origin.removeprefix("http://") in own
