"""In somebody else's folder we are that somebody; only trusted folders and peers are dealt with."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr import folders, named_files
from autobrrr.cli import main
from autobrrr.cli.output_file import check_places
from autobrrr.errors import EXIT_DONE, EXIT_USAGE, AutobrrrError, UsageError
from autobrrr.folders import Folder, as_user, open_beneath, peer_uid

PACKAGE = Path(folders.__file__).parent
THEM, OTHERS = 23456, 23457
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for other users")


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder in which everybody may make things, like /tmp."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o1777)
        yield Path(made)


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Folder]:
    with Folder.private(tmp_path / "ours", os.geteuid()) as folder:
        yield folder


def test_what_we_are_already_runs_at_once_on_this_thread() -> None:
    assert as_user(os.geteuid(), os.getegid(), threading.get_ident) == threading.get_ident()


@needs_root
def test_another_user_s_files_are_made_as_theirs_and_ours_stay_out_of_reach(public: Path) -> None:
    secret = public / "secret"
    secret.write_text("root's own")
    secret.chmod(0o600)

    def work() -> None:
        (public / "made").write_text("x")
        with pytest.raises(PermissionError):
            secret.read_text()
        with pytest.raises(PermissionError):
            os.chown(public / "made", 0, 0)
        with pytest.raises(PermissionError):
            secret.chmod(0o666)

    as_user(THEM, THEM, work)
    assert ((public / "made").stat().st_uid, (public / "made").stat().st_gid) == (THEM, THEM)
    assert secret.read_text() == "root's own"  # and this thread is still who it was
    (public / "again").write_text("x")
    assert (public / "again").stat().st_uid == 0


@needs_root
def test_root_s_groups_are_left_behind_too(public: Path) -> None:
    code = (
        "import os, sys\nfrom autobrrr.folders import as_user\nos.setgroups([4242])\n"
        "try: as_user(23456, 23456, lambda: open(sys.argv[1]).close())\n"
        "except PermissionError: print('refused', os.getgroups())\n"
    )
    shared = public / "of-the-group"
    shared.write_text("x")
    os.chown(shared, 0, 4242)
    shared.chmod(0o640)
    package = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, str(shared)],
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "refused [4242]\n", done.stderr


@needs_root
def test_what_a_file_system_answers_too_late_is_taken_care_of() -> None:
    answers, came = threading.Event(), threading.Event()
    late: list[int] = []

    def look() -> int:
        answers.wait()
        return 7

    with pytest.raises(TimeoutError, match=f"uid {THEM} does not answer"):
        as_user(THEM, THEM, look, answer_s=0.05, late=lambda fd: (late.append(fd), came.set()))
    assert late == []
    answers.set()
    assert came.wait(10)
    assert late == [7]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_without_the_right_nothing_is_done_for_others() -> None:
    with pytest.raises(OSError):
        as_user(os.geteuid() + 1, os.getegid(), lambda: None)


@pytest.mark.parametrize("with_openat2", [True, False])
def test_a_path_stays_inside_the_root_that_it_is_looked_up_in(
    with_openat2: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_openat2:
        monkeypatch.setattr(folders, "_OPENAT2", 100_000)  # no such system call
    inside = tmp_path / "root"
    (inside / "var" / "tmp").mkdir(parents=True)
    (inside / "var" / "tmp" / "here").write_text("")
    (tmp_path / "outside").mkdir()
    (inside / "up").symlink_to("../outside")
    (inside / "absolute").symlink_to(tmp_path / "outside")
    root = os.open(inside, os.O_PATH | os.O_DIRECTORY)
    fd = open_beneath(root, "/var/tmp")
    assert os.listdir(fd) == ["here"]
    os.close(fd)
    for escape in ("up", "absolute", "../outside", "var/../../outside", "none"):
        with pytest.raises(OSError):
            os.close(open_beneath(root, escape))
    os.close(root)


def test_a_private_folder_is_made_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    assert Folder.existing(path, os.geteuid(), (os.geteuid(),)) is None
    with Folder.private(path, os.geteuid()) as made:
        assert os.fstat(made.fd).st_mode & 0o777 == 0o700
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    found = Folder.existing(path, os.geteuid(), (os.geteuid(),))
    assert found is not None
    found.close()


@needs_root
def test_a_private_folder_of_another_user_is_theirs(public: Path) -> None:
    with Folder.private(public / "sub" / "theirs", THEM) as made:
        assert made.uid == THEM
        made.write("note", b"x")
        assert (public / "sub" / "theirs" / "note").stat().st_uid == THEM
        assert (public / "sub").stat().st_uid == THEM


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777, 0o1777])
def test_a_folder_that_is_open_to_others_is_not_trusted(mode: int, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(AutobrrrError, match="is open to other users"):
        Folder.existing(tmp_path / "open", os.geteuid(), (os.geteuid(),))
    with pytest.raises(AutobrrrError, match="is open to other users"):
        Folder.private(tmp_path / "open", os.geteuid())


@needs_root
def test_a_folder_that_somebody_else_put_there_is_named_with_its_owner(public: Path) -> None:
    as_user(OTHERS, OTHERS, lambda: (public / "planted").mkdir(mode=0o700))
    for ask in (
        lambda: Folder.existing(public / "planted", 0, (0,)),
        lambda: Folder.private(public / "planted", 0),
        lambda: Folder.existing(public / "planted", THEM, (0, THEM)),
        lambda: Folder.private(public / "planted", THEM),
    ):
        with pytest.raises(AutobrrrError, match=f"uid {OTHERS}") as caught:
            ask()
        assert caught.value.hint


def test_a_link_or_a_file_in_the_place_of_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(AutobrrrError, match="not a folder"):
            Folder.existing(tmp_path / name, os.geteuid(), (os.geteuid(),))
        with pytest.raises(AutobrrrError, match="not a folder"):
            Folder.private(tmp_path / name, os.geteuid())


def test_files_are_written_and_links_read_by_name_and_no_link_is_followed(
    ours: Folder, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    os.symlink(tmp_path / "secret", "link", dir_fd=ours.fd)
    os.mkfifo("pipe", dir_fd=ours.fd)
    ours.write("note", b"0123456789")
    assert (tmp_path / "ours" / "note").read_bytes() == b"0123456789"
    assert ours.link_text("link") == str(tmp_path / "secret")
    assert [ours.link_text(name) for name in ("note", "none", "pipe")] == [None] * 3
    with pytest.raises(OSError):
        ours.write("link", b"x")
    assert (tmp_path / "secret").read_text() == "secret"
    ours.remove("note")
    ours.remove("note")
    parent = os.open(tmp_path, os.O_PATH)
    ours.remove_all(parent, "ours")
    os.close(parent)
    assert not (tmp_path / "ours").exists()
    assert (tmp_path / "secret").exists()


def test_whatever_the_umask_a_socket_is_never_open_to_others(ours: Folder) -> None:
    before = os.umask(0)
    try:
        door = ours.listen("door", 1)
    finally:
        os.umask(before)
    assert ours.kind("door") & 0o777 == 0o600
    link = ours.connect("door", (os.geteuid(),))
    assert peer_uid(link) == os.geteuid()
    link.close()
    with pytest.raises(PermissionError, match=f"uid {os.geteuid()} answers"):
        ours.connect("door", (os.geteuid() + 1,))
    door.close()


def test_a_link_in_the_place_of_a_socket_leads_to_nobody(ours: Folder, tmp_path: Path) -> None:
    """It would bring root to any socket of the machine, resolved outside the container that made it."""
    with Folder.private(tmp_path / "service", os.geteuid()) as service, service.listen("door", 1):
        os.symlink(tmp_path / "service" / "door", "door", dir_fd=ours.fd)
        with pytest.raises(OSError):
            ours.connect("door", (os.geteuid(),))


def test_what_is_no_plain_file_is_not_even_opened(ours: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open the device of a watchdog reboots the machine."""
    os.mkfifo("pipe", dir_fd=ours.fd)
    ours.write("note", b"0123456789")
    opened: list[tuple[object, int]] = []
    really = os.open

    def spied(name: str, flags: int, *words: int, dir_fd: int | None = None) -> int:
        opened.append((name, flags))
        return really(name, flags, *words, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", spied)
    assert (ours.file_text("note", 4), ours.file_text("none", 4), ours.file_text("pipe", 4)) == (
        "0123", None, None
    )  # fmt: skip
    assert all(flags & os.O_PATH for name, flags in opened if name == "pipe")


def test_a_lock_has_one_holder_and_dies_with_it(ours: Folder) -> None:
    first = ours.lock("a.lock")
    assert first is not None
    assert ours.lock("a.lock") is None
    assert ours.holds_lock("a.lock")
    os.close(first)
    assert not ours.holds_lock("a.lock")
    second = ours.lock("a.lock")
    assert second is not None
    ours.unlock("a.lock", second)
    assert ours.names() == []


def test_what_is_no_file_of_the_owner_is_no_lock(ours: Folder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    os.symlink(tmp_path / "elsewhere", "link.lock", dir_fd=ours.fd)
    os.mkfifo("pipe.lock", dir_fd=ours.fd)
    for name in ("link.lock", "pipe.lock"):
        with pytest.raises(OSError):
            ours.lock(name)
        assert not ours.holds_lock(name)


def test_the_name_of_a_folder_means_nothing_after_it_was_opened(ours: Folder, tmp_path: Path) -> None:
    (tmp_path / "ours").rename(tmp_path / "moved")
    (tmp_path / "ours").mkdir()
    ours.write("note", b"x")
    with socket.socket(socket.AF_UNIX):
        assert os.listdir(tmp_path / "ours") == []
    assert os.listdir(tmp_path / "moved") == ["note"]


@needs_root
@pytest.mark.timeout(30)
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_root_writes_through_nothing_that_somebody_else_has_put_into_their_folder(
    what: str, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 23456, 23456)
    named = theirs / "fast.toml"
    if what == "link":
        named.symlink_to(precious)
    else:
        os.mkfifo(named)
    with pytest.raises(UsageError, match=f"is a {what}"):
        named_files.open_named(named)
    assert precious.read_text() == "kept"
    (theirs / "out").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="lies behind a link"):
        named_files.open_named(theirs / "out/precious")
    assert precious.read_text() == "kept"
    own = tmp_path / "link"
    own.symlink_to(precious)
    os.close(named_files.open_named(own))  # root's own link, in root's own folder
    assert precious.read_text() == ""
    os.close(named_files.open_named(theirs / "new"))


@needs_root
def test_root_names_a_file_in_a_folder_above_and_keeps_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "sub").mkdir(parents=True)
    os.chown(theirs, THEM, THEM)
    monkeypatch.chdir(theirs / "sub")
    held = os.listdir("/proc/self/fd")
    os.close(named_files.open_named("../page.html"))
    assert len(os.listdir("/proc/self/fd")) == len(held)
    assert (theirs / "page.html").exists()


def test_no_verb_writes_a_file_that_was_named_but_through_the_one_door() -> None:
    found = [
        str(file.relative_to(PACKAGE))
        for room in ("cli", "report")
        for file in sorted((PACKAGE / room).rglob("*.py"))
        if re.search(r"write_text\(|\.open\(['\"][wax]", file.read_text())
    ]
    assert found == []


@needs_root
def test_root_follows_its_own_links_on_the_way_to_a_file_of_others(tmp_path: Path) -> None:
    (tmp_path / "real/theirs").mkdir(parents=True)
    os.chown(tmp_path / "real/theirs", THEM, THEM)
    (tmp_path / "home").symlink_to(tmp_path / "real")  # as /home leads to /var/home
    named = tmp_path / "home/theirs/page.html"
    named_files.check_named(named)
    os.close(named_files.open_named(named))
    assert named.exists()
    named_files.remove_named(named)
    assert not named.exists()


@needs_root
def test_a_new_recipe_of_root_s_follows_no_link_of_others(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", THEM, THEM)
    (tmp_path / "theirs/out").symlink_to(tmp_path / "kept")
    assert main(["recipe", "new", str(tmp_path / "theirs/out/a.toml")]) == EXIT_USAGE
    assert list((tmp_path / "kept").iterdir()) == []
    assert main(["recipe", "new", str(tmp_path / "theirs/a.toml")]) == EXIT_DONE
    assert main(["recipe", "new", str(tmp_path / "theirs/a.toml")]) == EXIT_USAGE


@needs_root
def test_what_root_will_not_write_to_is_said_before_there_is_anything_to_write(tmp_path: Path) -> None:
    os.chown(tmp_path, THEM, THEM)
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "out").symlink_to(tmp_path)
    for name, why in (("link", "is a link"), ("out/new", "lies behind a link")):
        with pytest.raises(UsageError, match=why):
            named_files.check_named(tmp_path / name)
        with pytest.raises(UsageError, match=why):
            check_places(tmp_path / name)
    named_files.check_named(tmp_path / "new")
    with pytest.raises(UsageError, match="lies behind a link"):
        named_files.remove_named(tmp_path / "out/kept")
    assert (tmp_path / "kept").exists()


def test_nobody_waits_for_a_file_system_that_does_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, close = threading.Event(), os.close
    stuck = [os.open(os.devnull, os.O_RDONLY) for _ in range(folders.MOST_STUCK + 1)]

    def asked(fd: int) -> None:
        if fd in stuck:
            answers.wait(20)
        close(fd)

    monkeypatch.setattr(os, "close", asked)
    assert [folders.let_go(fd) for fd in stuck] == [True] * folders.MOST_STUCK + [False]
    assert all(os.fstat(fd) for fd in stuck)  # nobody has answered, and nobody waits
    answers.set()
    for thread in folders._letting_go:
        thread.join(20)
    assert folders.let_go(stuck[-1])
