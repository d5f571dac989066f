"""A study as text and as a page, what is proposed, and what every trial starts with."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import msgspec
import pytest

from autobrrr.errors import AutobrrrError
from autobrrr.records import Advice, Trial, Tuning
from autobrrr.relaunch.search.argparse_flags import Declared
from autobrrr.relaunch.search.search_space import Parameter, make_space
from autobrrr.relaunch.study.command_refusals import refuse_crowding
from autobrrr.relaunch.study.propose_space import proposed
from autobrrr.relaunch.trial.memory_use import available_bytes
from autobrrr.relaunch.trial.trial_factory import free_port, quiet, walls, with_own_port
from autobrrr.report.html.page_template import page_html, picture
from autobrrr.report.page_text import page_text
from autobrrr.report.pages.study_page import _slices, importance, study_page
from support.pages import read_page

USUAL = ("bitwise", "rounding")


def trial(workers: int, threads: str, speed: float | None, outcome: str = "undone") -> Trial:
    return Trial(
        remedy=f"--workers={workers}, env:T={threads}",
        options={"--workers": workers, "env:T": threads},
        outcome=outcome,  # type: ignore[arg-type]
        why="+1 %" if speed else "oom: out of memory <here>",
        class_="bitwise",
        predicted=None,
        achieved=speed,
        interval=None if speed is None else [speed - 0.02, speed + 0.02],
        blocks=12,
        steps=400,
        duration_ns=3,
        memory_bytes=300 << 20 if speed else None,
        predicted_memory_bytes=2 << 30,
    )


TRIALS = [
    trial(1, "1", 1.2, "kept"),
    trial(2, "1", 1.1),
    trial(1, "2", 1.2),
    trial(2, "2", 1.1),
    trial(8, "2", None, "refused"),
]


def tuning(kept: bool) -> Tuning:
    return Tuning(
        objective="samples_per_s",
        baseline=100.0,
        best=120.0 if kept else 100.0,
        speedup=1.2 if kept else 1.0,
        interval=[1.15, 1.25] if kept else None,
        class_="bitwise",
        kept=["--workers=1"] if kept else [],
        reverted=[],
        trials=TRIALS,
        recipe="r.toml" if kept else None,
    )


def test_the_table_says_every_trial_and_the_confirmed_figure() -> None:
    text = page_text(study_page(tuning(kept=True)), None)
    assert "1.20x [1.15–1.25] as fast with --workers=1 (class bitwise)" in text
    assert re.search(r"as given +100 samples/s\n +with --workers=1 +120 samples/s\n", text)
    assert "not possible" in text
    assert "300 MB" in text
    assert "oom: out of memory" in text
    assert "autobrrr run --recipe r.toml" in text


def test_nothing_proven_is_said_as_plainly() -> None:
    text = page_text(study_page(tuning(kept=False)), None)
    assert "No faster setting was proven (5 of 5 trials ran)." in text
    assert re.search(r"as given +100 samples/s", text)


def test_the_page_escapes_what_scripts_print_and_shows_every_trial() -> None:
    text = page_html(study_page(tuning(kept=True)))
    page = read_page(text)
    assert "oom: out of memory <here>" in page.text
    assert "<here>" not in text
    assert text.count('class="span') == 4 + 1  # and the fresh starts
    assert page.text.count("300 MB") == 4
    assert "100 samples/s" in page.text
    assert "120 samples/s" in page.text
    assert json.loads(page.data["data"])["speedup"] == 1.2
    assert "fresh starts" not in read_page(page_html(study_page(tuning(kept=False)))).text


def test_a_study_without_any_measured_trial_has_its_page_too() -> None:
    failed = msgspec.structs.replace(tuning(kept=False), trials=[trial(8, "2", None, "refused")])
    assert "not possible" in read_page(page_html(study_page(failed))).text


def test_every_parameter_has_a_slice_with_all_its_levels() -> None:
    drawn = list(_slices([each for each in TRIALS if each.achieved]))
    assert [each.title for each in drawn] == ["--workers", "env:T"]
    assert [label for _, label in picture(drawn[0]).ticks_across()] == ["1", "2"]
    (line,) = drawn[0].lines
    assert len({point.x for point in line.points}) == 4  # of one level they stand side by side
    wide = msgspec.structs.replace(trial(1, "1", 1.0), interval=[0.3, 2.36])
    shown = picture(next(_slices([wide, trial(2, "1", 1.0)])))
    assert shown.y(0.3) > shown.y(1.0)  # the interval is held whole


def test_what_made_the_difference_is_the_parameter_that_did() -> None:
    found = importance(TRIALS)
    assert list(found) == ["--workers", "env:T"]
    assert found["--workers"] > 0.9
    assert sum(found.values()) == pytest.approx(1.0)


def test_without_a_difference_nothing_made_it() -> None:
    assert importance(TRIALS[:2]) == {}
    alike = [msgspec.structs.replace(each, interval=[0.5, 2.0]) for each in TRIALS if each.achieved]
    assert importance(alike) == {}


def advice(remedy: str, cls: str = "rounding") -> Advice:
    return Advice(remedy=remedy, why="", expected=1.2, reach="live", class_=cls)  # type: ignore[arg-type]


def space_for(
    declared: dict[str, Declared],
    *,
    command: str = "python train.py",
    cores: int = 1,
    told: tuple[Advice, ...] = (),
) -> list[Parameter]:
    """What is proposed for a script on a machine without a GPU."""
    return proposed(
        command=command.split(),
        env={},
        declared=declared,
        advice=told,
        allowed=USUAL,
        cores=cores,
        cuda=False,
    )


def test_a_space_is_proposed_from_flags_machine_and_diagnosis() -> None:
    declared = {
        "--batch-size": Declared(default=16),
        "--accum": Declared(default=2),
        "--num-workers": Declared(default=0),
    }
    told = advice("threads.intra_op"), advice("optimizer.fused"), advice("precision.bf16", "changes-training")
    found = space_for(declared, cores=6, told=told)
    assert [each.name for each in found] == [
        "--batch-size",
        "--num-workers",
        "env:OMP_NUM_THREADS",
        "optimizer.fused",
    ]
    assert found[0].levels == (8, 16, 32, 64)
    assert found[1].levels == (0, 1, 2, 4, 6)


def test_flags_of_a_script_without_argparse_are_seen_where_the_command_gives_them() -> None:
    found = space_for({}, command="python train.py --batch_size=8 --gradient_accumulation_steps=4")
    assert [(each.name, each.levels) for each in found] == [("--batch_size", (4, 8, 16, 32))]


def test_without_accumulation_no_batch_is_proposed_unasked() -> None:
    assert space_for({"--batch-size": Declared(default=16)}) == []


def test_what_is_proposed_unasked_can_be_searched() -> None:
    declared = {
        "--batch-size": Declared(default=16),
        "--accumulate": Declared(),  # its default is computed
        "--num-workers": Declared(default=0),
    }
    found = space_for(declared, cores=2)
    assert [each.name for each in found] == ["--num-workers", "env:OMP_NUM_THREADS"]
    assert make_space(found, ["python", "train.py"], declared, USUAL).points()


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("env OMP_NUM_THREADS=1 python train.py", ["--num-workers"]),
        ("uv run train.py --num-workers=2", ["env:OMP_NUM_THREADS"]),
    ],
)
def test_what_can_t_be_varied_in_a_command_is_not_proposed(command: str, names: list[str]) -> None:
    found = space_for({"--num-workers": Declared(default=0)}, command=command, cores=2)
    assert [each.name for each in found] == names


def test_trackers_are_off_and_the_user_s_variables_stay() -> None:
    found = quiet({"HOME": "/home/me", "WANDB_MODE": "online"}, Path("/study"))
    assert found["HOME"] == "/home/me"
    assert found["WANDB_MODE"] == "disabled"
    assert found["MLFLOW_TRACKING_URI"] == "file:///study/mlruns"


def test_walls_take_a_quarter_of_the_free_memory(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 4194304 kB\n")
    assert available_bytes(tmp_path) == 4 << 30
    found = walls(tmp_path, {"TMPDIR": "/no/such"}, tmp_path)
    assert found == {"size_bytes": 1 << 30, "needed": [str(tmp_path)], "network": True}


def test_two_copies_that_do_not_fit_into_memory_are_refused() -> None:
    refuse_crowding(4 << 30, 6 << 30)
    refuse_crowding(None, 1)
    refuse_crowding(1, None)
    with pytest.raises(AutobrrrError, match=r"one takes 6\.00 GB, 4\.00 GB are free"):
        refuse_crowding(6 << 30, 4 << 30)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --port 1", "python train.py --port 1"),
        ("python train.py --master_port 1", "python train.py --master_port 7"),
        ("torchrun --nproc_per_node 2 train.py", "torchrun --nproc_per_node 2 train.py"),
        ("torchrun --master-port=29500 train.py", "torchrun --master-port=7 train.py"),
        ("torchrun --rdzv-endpoint=localhost:29400 t.py", "torchrun --rdzv-endpoint=localhost:7 t.py"),
        ("torchrun --rdzv_endpoint 127.0.0.1:1 t.py", "torchrun --rdzv_endpoint 127.0.0.1:7 t.py"),
        ("torchrun --rdzv_endpoint node0:29400 t.py", "torchrun --rdzv_endpoint node0:29400 t.py"),
        ("accelerate launch train.py", "accelerate launch --main_process_port 7 train.py"),
        ("/usr/bin/deepspeed train.py", "/usr/bin/deepspeed --master_port 7 train.py"),
        ("python -m train --strategy deepspeed", "python -m train --strategy deepspeed"),
    ],
)
def test_a_launcher_meets_at_the_free_port(command: str, expected: str) -> None:
    words, variables = with_own_port(command.split(), {"MASTER_PORT": "29500", "A": "b"}, lambda: 7)
    assert " ".join(words) == expected
    assert variables == {"MASTER_PORT": "7", "PET_MASTER_PORT": "7", "A": "b"}


def test_a_free_port_can_be_taken() -> None:
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", free_port()))
