"""Whether the job captures a CUDA graph, in any of its threads.

In: torch's `CUDAGraph`, watched while the agent is attached. Out: one answer. Each call of ours on a stream,
an event or an allocator asks for it first: in torch's default mode such a call from any thread ends the
capture, and the job raises.
"""

from __future__ import annotations

from types import ModuleType

from .patches import Patch, around, patched

_under_way: set[int] = set()  # graphs, by id


def capturing(torch: ModuleType) -> bool:
    """Whether a CUDA graph is being captured. From any thread; starts no device."""
    # CUDA tells of one stream at a time. Captures that begin while we watch are known by their calls; older
    # ones, and those of other libraries, only on the stream that is current here.
    cuda = torch.cuda
    return bool(_under_way) or bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def watch_captures(torch: ModuleType) -> list[Patch]:
    """Begin to note captures."""
    _under_way.clear()
    graph = getattr(torch.cuda, "CUDAGraph", None)
    begins = around(lambda graph, *_, **__: _under_way.add(id(graph)))
    ended = around(after=lambda graph: _under_way.discard(id(graph)))
    return [*patched(graph, "capture_begin", begins), *patched(graph, "capture_end", ended)]
