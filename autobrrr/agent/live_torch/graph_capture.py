"""Whether the training thread captures a CUDA graph.

Each call of ours on a stream, an event or an allocator asks for it first: such a call ends the capture, and
the job raises. All are made on the training thread, where a capture makes its stream the current one.
"""

from __future__ import annotations

from types import ModuleType


def capturing(torch: ModuleType) -> bool:
    """Whether a CUDA graph is being captured on this thread. Starts no device."""
    cuda = torch.cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
