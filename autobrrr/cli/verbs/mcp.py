"""`autobrrr mcp`: the verbs as tools of the Model Context Protocol, over stdin and stdout.

Without `--allow` it only reads: it lists jobs, shows earlier sessions and explains words.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

from autobrrr.cli.verb_arguments import flag
from autobrrr.errors import EXIT_DONE, AutobrrrError, NotInstalled

ABOUT = (
    "autobrrr says what limits a running PyTorch training job, tries remedies on it, and proves speed-ups."
    " Believe a speed-up only where tune or prove says so; unknown is an answer."
)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    more = "offer also what enters jobs or starts commands: diagnose, what_to_try, tune, detach, prove"
    flag(parser, "--allow", more)


def run(args: argparse.Namespace) -> int:
    """Serve until the client closes its end.

    Raises:
        NotInstalled: the package of the protocol is not there.
    """
    if importlib.util.find_spec("mcp") is None:
        raise NotInstalled("mcp", "mcp")
    import anyio
    from mcp.server import MCPServer
    from mcp_types import ToolAnnotations

    from autobrrr import __version__
    from autobrrr.cli.agent_tools import CHANGING, LOOKING, READING

    server = MCPServer("autobrrr", instructions=ABOUT, version=__version__, log_level="ERROR")
    for tool in (*READING, *((*LOOKING, *CHANGING) if args.allow else ())):
        hints = ToolAnnotations(read_only_hint=tool in READING, destructive_hint=tool in CHANGING)
        server.tool(structured_output=False, annotations=hints)(_answering(tool))
    # Where the client has closed its end before it was answered.
    gone = (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError)
    try:
        server.run("stdio")
    except gone:
        pass
    except Exception as error:
        if not hasattr(error, "split") or error.split(gone)[1] is not None:  # of a group of errors
            raise
    return EXIT_DONE


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
