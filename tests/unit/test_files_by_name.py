"""Files are made, changed and removed by name in our own folders alone; elsewhere `folders` does it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

import autobrrr

PACKAGE = Path(autobrrr.__file__).resolve().parent

CHANGES = {
    "os": {
        *("chmod", "chown", "lchown", "link", "makedirs", "mkdir", "mkfifo", "mknod", "remove", "removedirs"),
        *(
            "rename",
            "renames",
            "replace",
            "rmdir",
            "setxattr",
            "symlink",
            "truncate",
            "umask",
            "unlink",
            "utime",
        ),
    },
    "shutil": {"chown", "copy", "copy2", "copyfile", "copytree", "move", "rmtree"},
    "tempfile": {"NamedTemporaryFile", "TemporaryDirectory", "mkdtemp", "mkstemp"},
}
METHODS = {
    *("bind", "chmod", "hardlink_to", "lchmod", "mkdir", "rename", "rmdir", "symlink_to", "touch", "unlink"),
    *("write_bytes", "write_text"),
}
TO_WRITE = {"O_CREAT", "O_RDWR", "O_WRONLY", "O_TRUNC", "O_APPEND"}

# Whose folder each of these works in. Root has none of somebody else's among them.
OURS = {
    "folders.py": "does it for all others: by descriptors, as the folder's owner",
    "named_files.py": "what the user has named, in the folder that it was walked to",
    "paths.py": "makes our own private folders, also as another user when `folders` asks",
    "injected/wire/agent_socket.py": "inside the job, as its user: the socket of a preloaded agent",
    "injected/audit/work_audit.py": "inside the job, as its user: its account, in our own sandbox",
    "injected/entry.py": "inside the job, as its user: clears the folder that brought it, by its descriptor",
    "injected/ranks/shared_log.py": "inside the job, as its user: memory of another rank, which has no name",
    "injected/recipe_startup.py": "inside the job, as its user: the outcome of a recipe",
    "injected/measure/profiler_window.py": "inside the job, as its user: a trace in a temporary folder",
    "injected/op_replay/record_task.py": "inside the job, as its user: a record in a temporary folder",
    "attach/bundle/code_bundle.py": "our cache",
    "attach/doctor_checks.py": "a temporary folder of ours, with a child of ours",
    "attach/preload/preloaded_agent.py": "our runtime folder, for a command that we start ourselves",
    "attach/ptrace/borrowed_thread.py": "the memory of a process that we trace",
    "attach/triage.py": "asks the kernel whether that may be opened",
    "cli/__init__.py": "/dev/null",
    "cli/verbs/demo.py": "a temporary folder of ours",
    "cli/output_file.py": "a file that the user named",
    "cli/recipe_actions.py": "a file that the user named",
    "cli/verbs/prove.py": "a temporary folder of ours",
    "cli/tune_script.py": "a folder that the user named",
    "relaunch/search/study_journal.py": "our state",
    "tuner/tuning_study.py": "our state folder: a journal that can't be read is set aside",
    "relaunch/sandbox/supervisor.py": "the sandbox of a command that we start ourselves",
    "relaunch/trial/trial_ports.py": "a port of this machine",
    "relaunch/trial/live_trial.py": "the sandbox of a command that we start ourselves",
    "relaunch/sandbox/workdir_copy.py": "the sandbox of a command that we start ourselves",
    "relaunch/trial/trial_factory.py": "the sandbox of a command that we start ourselves",
    "relaunch/sandbox/overlay_mounts.py": "the sandbox of a command that we start ourselves",
    "prove/revision_folders.py": "a temporary folder of ours",
    "prove/locked_environments.py": "our cache",
    "report/perfetto_export.py": "a file that the user named",
    "roofline/calibration_cache.py": "our cache",
    "sidecar/process/daemonize.py": "our state, and /dev/null",
    "sidecar/session/session_log.py": "our state",
}


def changes(tree: ast.AST) -> Iterator[int]:
    """Lines at which a file is made, changed or removed by name."""
    return (node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and is_change(node))


def is_change(node: ast.Call) -> bool:
    called = node.func
    if isinstance(called, ast.Name):
        return called.id == "open" and opens_to_write(node, 1)
    if not isinstance(called, ast.Attribute):
        return False
    module = called.value.id if isinstance(called.value, ast.Name) else ""
    if called.attr == "open":
        return flags_to_write(node) if module == "os" else opens_to_write(node, 0)
    return called.attr in CHANGES[module] if module in CHANGES else is_method(called, node)


def is_method(called: ast.Attribute, node: ast.Call) -> bool:
    if called.attr == "replace":  # a path's takes one argument, a text's two
        return len(node.args) == 1 and not node.keywords
    if called.attr == "bind":  # a signature's takes anything but one address
        return len(node.args) == 1 and not isinstance(node.args[0], ast.Starred) and not node.keywords
    return called.attr in METHODS


def opens_to_write(node: ast.Call, at: int) -> bool:
    modes = [node.args[at]] if len(node.args) > at else []
    modes += [each.value for each in node.keywords if each.arg == "mode"]
    said = [each.value for each in modes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any(set(mode) & set("wax+") and set(mode) <= set("rwaxbt+") for mode in said)


def flags_to_write(node: ast.Call) -> bool:
    names = {
        each.attr for word in node.args[1:] for each in ast.walk(word) if isinstance(each, ast.Attribute)
    }
    return bool(names & TO_WRITE)


@pytest.fixture(scope="module")
def calls() -> dict[str, list[ast.Call]]:
    """All calls of each file of the package, by the file's name."""
    return {
        str(file.relative_to(PACKAGE)): [
            node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)
        ]
        for file in sorted(PACKAGE.rglob("*.py"))
    }


def test_text_that_a_user_gets_as_a_file_is_utf_8_in_every_locale(calls: dict[str, list[ast.Call]]) -> None:
    writing = [
        (file, node.lineno)
        for file, made in calls.items()
        if file.startswith(("cli/", "report/"))
        for node in made
        if is_change(node) and "open" in ast.unparse(node.func) and "open_named" in ast.unparse(node)
        if not any("b" in each.value for each in node.args if is_mode(each))
        if "encoding" not in [each.arg for each in node.keywords]
    ]
    assert writing == []


def is_mode(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_nobody_works_by_name_in_a_folder_that_may_be_somebody_else_s(
    calls: dict[str, list[ast.Call]],
) -> None:
    changing = {file: [node.lineno for node in made if is_change(node)] for file, made in calls.items()}
    found = {file: lines for file, lines in changing.items() if lines}
    assert {file: lines for file, lines in found.items() if file not in OURS} == {}
    assert set(OURS) - set(found) == set(), "these do no more what they are listed for"


def test_a_file_is_given_to_somebody_or_opened_to_others_in_the_sandbox_alone(
    calls: dict[str, list[ast.Call]],
) -> None:
    """By name, or at all: what is made as its owner need not be given away."""
    given = {"chown", "lchown", "fchown", "chmod", "lchmod", "umask"}
    found = {
        file
        for file, made in calls.items()
        for node in made
        if isinstance(node.func, ast.Attribute) and node.func.attr in given
    }
    assert found == {
        "relaunch/sandbox/supervisor.py",
        "relaunch/sandbox/workdir_copy.py",
        "relaunch/sandbox/overlay_mounts.py",
    }


@pytest.mark.parametrize(
    "line",
    [
        "os.chown('a', 1, 1)",
        "os.open('a', os.O_RDWR | os.O_CREAT)",
        "open('a', 'w')",
        "open('a', mode='ab')",
        "path.open('x')",
        "path.write_text('a')",
        "path.replace(other)",
        "shutil.rmtree(path)",
        "door.bind('/tmp/a')",
    ],
)
def test_the_lint_sees_what_it_is_for(line: str) -> None:
    assert list(changes(ast.parse(line))) == [1]


@pytest.mark.parametrize(
    "line",
    [
        "open('a')",
        "path.open('rb')",
        "text.replace('a', 'b')",
        "code.replace(co_name='a')",
        "os.open('a', os.O_RDONLY)",
        "signature.bind(self, *args)",
        "os.fchmod(fd, 0o600)",
    ],
)
def test_the_lint_lets_reading_and_descriptors_pass(line: str) -> None:
    assert list(changes(ast.parse(line))) == []
