"""A made-up /proc in a folder: processes with the files that our rooms read."""

import os
from dataclasses import dataclass
from pathlib import Path

TORCH_LINE = "7f0000200000-7f0000201000 r--p 00000000 08:01 9 /site/torch/lib/libtorch_python.so"


def write(file: Path, text: str) -> None:
    """Only what has changed: a file system may bring a file that is cut off to the disk at once."""
    content = text.encode()
    if not file.exists() or file.read_bytes() != content:
        file.write_bytes(content)


@dataclass(frozen=True)
class FakeProc:
    """Adds processes to `root`; give a pid again to change it."""

    root: Path

    def add(
        self,
        pid: int,
        *,
        state: str = "R",
        ppid: int = 1,
        comm: str = "python",
        cpu_ticks: int = 100,
        main_ticks: int = 100,
        start_ticks: int = 777,
        stack_start: int = 4,
        words: tuple[str, ...] = ("python", "train.py"),
        environ: dict[str, str] | None = None,
        torch: bool = False,
        uid: int | None = None,
        syscall: str = "running",
        switches: int = 0,
        **status: str,
    ) -> Path:
        """Write one process."""
        folder = self.root / str(pid)
        main = folder / "task" / str(pid)
        main.mkdir(parents=True, exist_ok=True)
        (folder / "ns").mkdir(exist_ok=True)
        for place, ticks in ((folder, cpu_ticks), (main, main_ticks)):
            fields = f"{ppid} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {start_ticks} 0 0 0 0 0"
            write(place / "stat", f"{pid} ({comm}) {state} {fields} {stack_start}{' 0' * 24}\n")
        owner = os.geteuid() if uid is None else uid
        lines = {
            "Name": comm,
            "TracerPid": "0",
            "Uid": f"{owner}\t{owner}\t{owner}\t{owner}",
            "Gid": "0\t0\t0\t0",
            "SigCgt": "0" * 16,
            "NSpid": str(pid),
            "voluntary_ctxt_switches": str(switches),
            **status,
        }
        text = "".join(f"{name}:\t{value}\n" for name, value in lines.items())
        write(folder / "status", text)
        write(main / "status", text)
        write(folder / "cmdline", "".join(word + "\0" for word in words))
        given = environ or {}
        write(folder / "environ", "".join(f"{k}={v}\0" for k, v in given.items()))
        write(folder / "maps", TORCH_LINE + "\n" if torch else "")
        write(folder / "syscall", syscall + "\n")
        return folder

    def scope(self, value: int) -> None:
        """Set ptrace_scope."""
        folder = self.root / "sys" / "kernel" / "yama"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ptrace_scope").write_text(f"{value}\n")
