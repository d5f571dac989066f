"""`autobrrr mcp`: the verbs as tools of the Model Context Protocol, over stdin and stdout.

Without `--allow` it only reads: it lists jobs, shows earlier sessions and explains words.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from autobrrr.errors import EXIT_DONE, AutobrrrError, NotInstalled, UsageError

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from mcp_types import JSONRPCError

ABOUT = (
    "autobrrr says what limits a running PyTorch training job, tries remedies on it, and proves speed-ups."
    " Believe a speed-up only where tune or prove says so; unknown is an answer."
)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow",
        action="store_true",
        help="offer also what enters jobs or starts commands: diagnose, what_to_try, tune, detach, prove",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until the client closes its end.

    Raises:
        NotInstalled: the package of the protocol is not there.
        UsageError: stdin or stdout is closed.
    """
    if importlib.util.find_spec("mcp") is None:
        raise NotInstalled("mcp", "mcp", "mcp")
    if sys.stdin is None or sys.stdout is None:
        raise UsageError(
            "stdin or stdout is closed, over which a client is served", "let the client start autobrrr mcp"
        )
    from mcp.server import MCPServer

    from autobrrr import __version__
    from autobrrr.cli.agent_tools import ACTING, READING

    server = MCPServer("autobrrr", instructions=ABOUT, version=__version__, log_level="ERROR")
    for tool in (*READING, *(ACTING if args.allow else ())):
        server.tool(structured_output=False)(_answering(tool))
    try:
        asyncio.run(_serve(server))
    except Exception as error:
        if not all(isinstance(each, _gone()) for each in _leaves(error)):
            raise
    return EXIT_DONE


def _gone() -> tuple[type[Exception], ...]:
    """What is raised where the client has closed its end before it was answered."""
    import anyio

    return BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group of errors, or that error."""
    within: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    for each in within:
        yield from _leaves(each)
    if not within:
        yield error


async def _serve(server: MCPServer) -> None:
    """Over stdin and stdout. The server passes over a line that is no message; here it is answered."""
    import anyio
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage

    # It alone takes other streams than stdin and stdout; a version of the library may not have it.
    lowlevel = getattr(server, "_lowlevel_server", None)
    if lowlevel is None:
        await server.run_stdio_async()
        return
    async with stdio_server() as (told, answers):
        pass_on, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def sift() -> None:
            async with pass_on:
                async for one in told:
                    if not isinstance(one, Exception):
                        await pass_on.send(one)
                    elif (answer := _no_message(one)) is not None:
                        await answers.send(SessionMessage(answer))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sift)
            await lowlevel.run(messages, answers, lowlevel.create_initialization_options())
            tasks.cancel_scope.cancel()


def _no_message(error: Exception) -> JSONRPCError | None:
    """What a line is answered with that can't be read as a message; None for an empty one."""
    from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
    from pydantic import ValidationError

    fault = error.errors()[0] if isinstance(error, ValidationError) else None
    if fault is None or fault["type"] != "json_invalid":
        found = ErrorData(code=INVALID_REQUEST, message="this line is JSON, but no message of the protocol")
    elif not str(fault["input"]).strip():
        return None
    else:
        found = ErrorData(code=PARSE_ERROR, message="this line is no JSON; each message is one line of JSON")
    return JSONRPCError(jsonrpc="2.0", id=None, error=found)


def _answering(tool: Callable[..., Any]) -> Callable[..., Any]:
    """The tool beside the server's loop; what a user would be told, the client is told."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    async def answer(**arguments: Any) -> str:
        try:
            if inspect.iscoroutinefunction(tool):
                return str(await tool(**arguments))
            return str(await asyncio.to_thread(tool, **arguments))
        except AutobrrrError as error:
            raise ToolError(f"{error.message}; {error.hint}") from None

    return answer
