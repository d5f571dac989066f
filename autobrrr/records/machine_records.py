"""Lines on this machine: its jobs, its checks."""

from __future__ import annotations

from typing import Literal

from autobrrr.records.record_base import Record


class DoctorCheck(Record, frozen=True, kw_only=True):
    """One line of `doctor`."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    fix: str


class JobLine(Record, frozen=True, kw_only=True):
    """One line of `ls`."""

    pid: int
    script: str | None = None
    rank: int | None = None
    torch: str | None = None
    attached: bool = False
    attachable: bool = False
    why: str | None = None
    job: str | None = None  # the same for all ranks of one job
    slowest: bool | None = None  # the other ranks wait for it; None: not measured
    user: str | None = None
    arguments: str | None = None  # of the script, as they were typed
    age_ns: int | None = None
    cpu_ns: int | None = None  # CPU time since its start
    rss_bytes: int | None = None
