"""A PostgreSQL server of a test's own: made in a temporary folder, started, stopped, taken away."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.training import ran

USER, PASSWORD = "tuner", "s3cret-{x}"  # braces: Optuna takes its URL for a template
INSTALLED = Path("/usr/lib/postgresql")


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`; None where no server is installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(INSTALLED.glob("*/bin/initdb"), key=lambda file: float(file.parts[-3]))
    return folders[-1].parent if folders else None


@dataclass
class Server:
    """A server on a port of localhost, and on a socket in its folder."""

    folder: Path
    binaries: Path
    port: int
    databases: int = 0
    process: subprocess.Popen[bytes] | None = None
    user: dict[str, object] = field(default_factory=dict)

    def url(self, database: str) -> str:
        escaped = PASSWORD.replace("{", "%7B").replace("}", "%7D")
        return f"postgresql://{USER}:{escaped}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Returns when it lets users in."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "off",
            "shared_buffers": "16MB",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.binaries / "postgres"), "-D", str(self.folder / "data"), *words],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                **self.user,  # type: ignore[call-overload]
            )
        deadline = time.monotonic() + 30
        while self._psql("postgres", "select 1").returncode != 0:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """At once: open connections are cut."""
        if self.process is not None:
            self.process.send_signal(3)  # SIGQUIT: immediate shutdown
            self.process.wait(30)
            self.process = None

    def new_database(self) -> str:
        self.databases += 1
        name = f"db{self.databases}"
        self.run("postgres", f"create database {name}")
        return name

    def run(self, database: str, statement: str) -> str:
        done = self._psql(database, statement)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _psql(self, database: str, statement: str) -> subprocess.CompletedProcess[str]:
        return ran(
            [
                *(str(self.binaries / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-qAt"),
                *("-d", database, "-c", statement),
            ],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            timeout=20,
        )


@contextlib.contextmanager
def server(binaries: Path) -> Iterator[Server]:
    """A server as long as the context lasts; it never runs as root, who is refused by it."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    user: dict[str, object] = {}
    if os.geteuid() == 0:
        found = pwd.getpwnam("nobody")
        os.chown(folder, found.pw_uid, found.pw_gid)
        user = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = Server(folder=folder, binaries=binaries, port=port, user=user)
    try:
        secret = folder / "secret"
        secret.write_text(PASSWORD)
        subprocess.run(
            [
                *(str(binaries / "initdb"), "-D", str(folder / "data"), "-U", USER, "-A", "scram-sha-256"),
                *(f"--pwfile={secret}", "--no-sync", "--locale=C", "--encoding=UTF8"),
            ],
            check=True,
            capture_output=True,
            cwd=folder,
            **user,  # type: ignore[call-overload]
        )
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
