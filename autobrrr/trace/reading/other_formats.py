"""What a file is that is no trace: told from its first bytes, with what to do about it."""

from __future__ import annotations

import re

from msgspec import Struct

_KINETO = "export it with torch.profiler: export_chrome_trace writes .json or .json.gz"
_PACKED = "unpack it first: "
_BY_START = (
    (rb"\x28\xb5\x2f\xfd", "it is compressed with zstd", _PACKED + "zstd -d {}"),
    (rb"BZh", "it is compressed with bzip2", _PACKED + "bunzip2 -k {}"),
    (rb"\xfd7zXZ\0", "it is compressed with xz", _PACKED + "unxz -k {}"),
    (rb"PK\x03\x04", "it is compressed with zip", _PACKED + "unzip {}"),
    (rb"\xff\xfe|\xfe\xff|[{\[]\0|\0[{\[]", "it is UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8 {}"),
    (
        rb"\s*<(?i:!doctype html|html|\?xml|!--|[a-z]+[ >])",
        "it is a web page or XML",
        "download the file itself",
    ),
    (rb"\x80", "it is a Python pickle", "open a memory snapshot at pytorch.org/memory_viz"),
)
_KEY = re.compile(rb'[{,]\s*"([A-Za-z_][\w .-]{0,40})"\s*:')
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


class NoTrace(Struct, frozen=True, kw_only=True):
    """One clause, and what to do next; the hint is empty where there is nothing to say."""

    text: str
    hint: str = ""


def what_it_is(head: bytes, name: str, *, bytes_seen: int) -> NoTrace:
    """What begins so, and holds no list of events in as many bytes as were looked through."""
    for start, text, hint in _BY_START:
        if re.match(start, head):
            return NoTrace(text=text, hint=hint.format(name))
    if head[:1] == b"{":
        return _other_json(head, bytes_seen)
    if _CONTROL.search(head):
        return NoTrace(text="it is binary, no JSON", hint=_KINETO)
    return NoTrace(text="it is no JSON" if head.strip() else "it is empty")


def _other_json(head: bytes, bytes_seen: int) -> NoTrace:
    keys = list(dict.fromkeys(each.decode() for each in _KEY.findall(head[:1024])))[:4]
    where = f" in its first {bytes_seen >> 20} MB" if bytes_seen >= 1 << 20 else ""
    shown = f" (JSON that begins with {', '.join(keys)})" if keys else ""
    return NoTrace(text=f"it has no list traceEvents{where}{shown}")
