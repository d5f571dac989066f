"""The ring of step records: a memfd that the agent writes and the sidecar reads.

The training thread packs one record per step and never waits. A plain step writes only the tail
(when, which arm, flags, sequence number); a sampled step writes its phases first. The sequence
number is the last field of a record: a reader that finds another number than it expects has
been overtaken. A step's time on a device is known only once the device has come to its end: until then the
record says so, and counts as not yet written. Standard library only.

Layout: a header of `HEADER_BYTES`, then `capacity` records of `RECORD_BYTES`, native byte order.
"""

from __future__ import annotations

import struct

MAGIC = b"ABRRRING"
LAYOUT_VERSION = 5
HEADER_BYTES = 4096
HEADER = struct.Struct("@8sIIII")  # magic, layout version, record bytes, capacity, pid
CAPACITY = 8192

SAMPLED_FIELDS = (
    "data_wait_ns",
    "forward_ns",  # -1: not measured
    "backward_ns",
    "optimizer_ns",  # with zero_grad
    "backwards",  # outermost backward calls in the step
    "fires",  # optimizer steps in the step, over all optimizers
    "samples",  # batch size as the loader or root call shows it; -1: not known
    "minor_faults",  # of the training thread
    "allocated_bytes",  # accelerator memory; -1: no accelerator
    "reserved_bytes",
    "garbage_ns",  # of Python's garbage collections, in whatever thread
    "loss_finite",  # 1 yes, 0 no, -1: not known
    "tokens",  # over all batches of the step, padding too, by their shape; -1: not known
)
FORWARD_NS, BACKWARDS, SAMPLES = map(SAMPLED_FIELDS.index, ("forward_ns", "backwards", "samples"))
TAIL_FIELDS = (
    "start_ns",  # time.perf_counter_ns when the agent handed the thread back to training
    "end_ns",  # when the hook on the anchor optimizer noted the time
    "own_ns",  # the agent's own work at the boundary before start_ns
    "device_ns",  # from start to end on the device's clock; UNSTAMPED, AWAITED
    "arm",  # which set of remedies was on: raised by one at every change
    "flags",
    "seq",  # 0, 1, 2 …
)
SAMPLED = struct.Struct(f"@{len(SAMPLED_FIELDS)}q")
TAIL = struct.Struct("@qqqqIIQ")
RECORD_BYTES = SAMPLED.size + TAIL.size
DEVICE = struct.Struct("@q")
FLAGS = struct.Struct("@I")
FLAGS_OFFSET = SAMPLED.size + struct.calcsize("@qqqqI")
DEVICE_OFFSET = SAMPLED.size + struct.calcsize("@qqq")  # of device_ns in a record

UNSTAMPED = 0  # the step's ends were not stamped by a device: on a CPU, or nobody asked for it
AWAITED = -1  # stamped, and the device has not come to the end yet: it is filled in later

PHASES = 1  # the sampled fields are valid
TRACED = 2  # ran under torch's CPU profiler: slower, never part of step figures
SKIPPED = 8  # a backward without an optimizer step (GradScaler found an inf)
EVALUATION = 16  # forward calls without grad ran in it
SWITCHED = 32  # a remedy changed at the boundary before it
SETTLING = 64  # hooks were being put on or looked for: not representative
AHEAD = 128  # the host came to its end while the device was still in an earlier step; set with device_ns
COMPILED = 256  # a remedy compiled or recorded a call within it
EPOCH = 512  # training began to read a DataLoader from its beginning in it
UNREPRESENTATIVE = TRACED | SKIPPED | EVALUATION | SWITCHED | SETTLING | COMPILED


def header(pid: int, capacity: int = CAPACITY) -> bytes:
    """The ring's header."""
    return HEADER.pack(MAGIC, LAYOUT_VERSION, RECORD_BYTES, capacity, pid)


def size_bytes(capacity: int = CAPACITY) -> int:
    """Bytes of the whole ring."""
    return HEADER_BYTES + capacity * RECORD_BYTES


def offset_bytes(seq: int, capacity: int = CAPACITY) -> int:
    """Where the record of a sequence number lies."""
    return HEADER_BYTES + (seq % capacity) * RECORD_BYTES
