"""What a file is that is no trace: told from its first bytes and its name, with what to do about it."""

from __future__ import annotations

import re

from msgspec import Struct

_PACKED = (
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d {}"),
    (b"BZh", "bzip2", "bunzip2 -k {}"),
    (b"\xfd7zXZ\0", "xz", "unxz -k {}"),
    (b"PK\x03\x04", "zip", "unzip {}"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -d {}"),
    (b"7z\xbc\xaf\x27\x1c", "7z", "7z x {}"),
    (b"\x1f\x9d", "compress", "uncompress {}"),
)
_KINETO = "export it with torch.profiler: export_chrome_trace writes .json or .json.gz"
_OTHERS = (
    (b"SQLite format 3\0", "it is an SQLite database, such as nsys export writes", _KINETO),
    (b"NVR\0", "it is a report of Nsight Compute", _KINETO),
    (
        b"\x80",
        "it is a Python pickle, such as a memory snapshot",
        "open a snapshot at pytorch.org/memory_viz",
    ),
    (b"\x7fELF", "it is a program", _KINETO),
    (b"\x93NUMPY", "it is a numpy array", _KINETO),
    (b"\x89HDF", "it is an HDF5 file", _KINETO),
)
_BY_NAME = (
    ((".nsys-rep", ".qdrep", ".qdstrm"), "it is a report of Nsight Systems"),
    ((".ncu-rep",), "it is a report of Nsight Compute"),
    ((".pftrace", ".perfetto-trace", ".pb"), "it is a Perfetto trace in protobuf"),
)
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"[\0", b"\0{", b"\0[")
_XPLANE = re.compile(rb"/(host|device):[A-Za-z]")  # how the first plane of a profile is called
_MARKUP = re.compile(rb"\s*<(?:!doctype html|html|\?xml|!--|[a-z]+[ >])", re.IGNORECASE)
_KEY = re.compile(rb'[{,]\s*"([A-Za-z_][\w .-]{0,40})"\s*:')
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


class NoTrace(Struct, frozen=True, kw_only=True):
    """One clause, and what to do next; the hint is empty where there is nothing to say."""

    text: str
    hint: str = ""


def packed_by(head: bytes, name: str) -> NoTrace | None:
    """Another compression than gzip, and the command that unpacks it."""
    for magic, program, command in _PACKED:
        if head.startswith(magic):
            return NoTrace(
                text=f"it is compressed with {program}",
                hint=f"unpack it first: {command.format(name)}",
            )
    return None


def what_it_is(head: bytes, name: str, *, bytes_seen: int) -> NoTrace:
    """What begins so, and holds no list of events in as many bytes as were looked through."""
    found = packed_by(head, name)
    if found is not None:
        return found
    for magic, text, hint in _OTHERS:
        if head.startswith(magic):
            return NoTrace(text=text, hint=hint)
    if head[:2] in _UTF16:
        return NoTrace(text="it is UTF-16", hint=f"convert it first: iconv -f UTF-16 -t UTF-8 {name}")
    if _MARKUP.match(head):
        return NoTrace(text="it is a web page or XML", hint="download the file itself")
    if head[257:262] == b"ustar":
        return NoTrace(text="it is a tar archive", hint=f"unpack it first: tar -xf {name}")
    if "tfevents" in name.rpartition("/")[2]:
        return NoTrace(
            text="it is TensorBoard's own event file", hint="name the *.pt.trace.json files beside it"
        )
    if head[:1] == b"{":
        return _other_json(head, bytes_seen)
    if _CONTROL.search(head):
        if name.endswith(".xplane.pb") or (head[:1] == b"\n" and _XPLANE.search(head, 0, 64)):
            return NoTrace(text="it is an XPlane profile of XLA", hint="open it in XProf (TensorBoard)")
        for endings, text in _BY_NAME:
            if name.endswith(endings):
                return NoTrace(text=text, hint=_KINETO)
        if head[:1] == b"\n":  # the first packet of a stream of TracePackets
            return NoTrace(text="it is binary, perhaps a Perfetto trace in protobuf", hint=_KINETO)
        return NoTrace(text="it is binary, no JSON")
    return NoTrace(text="it is no JSON" if head.strip() else "it is empty")


def _other_json(head: bytes, bytes_seen: int) -> NoTrace:
    keys = list(dict.fromkeys(each.decode() for each in _KEY.findall(head[:1024])))[:4]
    where = f" in its first {bytes_seen >> 20} MB" if bytes_seen >= 1 << 20 else ""
    shown = f" (JSON that begins with {', '.join(keys)})" if keys else ""
    return NoTrace(text=f"it has no list traceEvents{where}{shown}")
