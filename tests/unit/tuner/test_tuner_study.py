"""The study of a tuning: what is proposed, what its journal holds, how a later one goes on from it."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from autobrrr.tuner.candidate_space import Candidate, Choice
from autobrrr.tuner.comparison import Comparison
from autobrrr.tuner.confidence_sequence import Interval
from autobrrr.tuner.tuning_study import MOST_OF_TIME, TuningStudy
from support.simulated.tuner import Effect, SimulatedJob

FUSED, FREEZE = Choice(remedy="optimizer.fused"), Choice(remedy="gc.freeze")
FOREACH = Choice(remedy="optimizer.foreach")
COMPILE = Choice(remedy="compile.default")
ONE, TWO = (Choice(remedy="threads.intra_op", options=(("threads", count),)) for count in (1, 2))


def candidate(choice: Choice, predicted: float | None = None) -> Candidate:
    return Candidate(choice=choice, predicted=predicted, rare=False, cls="bitwise")


def found(gain: float) -> Comparison:
    return Comparison(
        decision="better",
        why="",
        interval=Interval(mean=gain, low=gain - 0.01, high=gain + 0.01, count=8),
        pairs=8,
        steps=80,
        duration_ns=1,
        without_ns=None,
    )


def asked(study: TuningStudy, **gains: float) -> list[str]:
    """Ask for all; each brings the gain named, or is refused."""
    order, kept = [], {}
    while (one := study.ask(kept)) is not None:
        order.append(one.candidate.choice.label)
        gain = gains.get(one.candidate.choice.remedy.replace(".", "_"))
        if gain is None:
            study.tell(one, None, "refused", "not for this job")
        else:
            study.tell(one, found(gain), "kept" if gain > 0.01 else "undone", "measured")
        if gain is not None and gain > 0.01:
            kept[one.candidate.choice] = math.exp(gain)
    return order


def in_journal(file: Path) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(file)))
    (only,) = storage.get_all_studies()
    return optuna.load_study(study_name=only.study_name, storage=storage)


def test_the_largest_gain_comes_first_and_what_has_no_prediction_as_listed() -> None:
    listed = [candidate(FREEZE), candidate(FUSED, 1.2), candidate(COMPILE, 1.3), candidate(ONE)]
    assert asked(TuningStudy(listed)) == [
        "compile.default",
        "optimizer.fused",
        "gc.freeze",
        "threads.intra_op(threads=1)",
    ]


def test_what_promises_more_may_take_more_of_the_time_but_never_most_of_it() -> None:
    names = ("gc.freeze", "optimizer.foreach", "layout.channels_last", "attention.sdpa", "gc.threshold")
    usual = [candidate(Choice(remedy=name)) for name in names]
    promising = candidate(Choice(remedy="optimizer.fused"), 1.3)
    study = TuningStudy([*usual, promising])
    first = study.ask()
    assert first is not None
    assert first.candidate == promising
    assert study.share_of_time(promising) == MOST_OF_TIME
    second = study.ask()
    assert second is not None
    assert study.share_of_time(second.candidate) == 1 / len(usual)
    while (last := study.ask()) is not None:
        alone = study.share_of_time(last.candidate)
    assert alone == 1


def test_optuna_reads_trials_attributes_and_values_in_the_journal(tmp_path: Path) -> None:
    file = tmp_path / "studies" / "live.journal"
    listed = [candidate(FUSED, 1.5), candidate(ONE), candidate(TWO), candidate(FREEZE)]
    asked(TuningStudy(listed, file), optimizer_fused=0.3, threads_intra_op=0.1, gc_freeze=0.0)
    trials = in_journal(file).trials
    assert [trial.params for trial in trials] == [
        {"gc.freeze": "off", "optimizer.fused": "on", "threads.intra_op": "off"},
        {"gc.freeze": "off", "optimizer.fused": "on", "threads.intra_op": "threads=1"},
        {"gc.freeze": "off", "optimizer.fused": "on", "threads.intra_op": "threads=2"},
        {"gc.freeze": "on", "optimizer.fused": "on", "threads.intra_op": "threads=2"},
    ]
    # Of the second count of threads only what it brings beside the fused optimizer and the first count.
    assert [round(trial.value, 6) for trial in trials] == [0.3, 0.4, 0.5, 0.5]
    assert trials[0].user_attrs["predicted"] == 1.5
    assert trials[0].user_attrs["interval"] == [pytest.approx(0.29), pytest.approx(0.31)]
    assert [trial.user_attrs["outcome"] for trial in trials] == ["kept", "kept", "kept", "undone"]
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}


def test_optuna_says_which_remedy_mattered(tmp_path: Path) -> None:
    file = tmp_path / "live.journal"
    for _ in range(6):
        study = TuningStudy([candidate(FUSED), candidate(FREEZE)], file)
        while (one := study.ask()) is not None:
            study.tell(one, found(0.4 if one.candidate.choice == FUSED else 0.0), "undone", "")
    told = get_param_importances(
        in_journal(file), evaluator=PedAnovaImportanceEvaluator(), params=["optimizer.fused", "gc.freeze"]
    )
    assert set(told) == {"optimizer.fused", "gc.freeze"}
    assert sum(told.values()) == pytest.approx(1.0)


def test_a_later_sidecar_goes_on_from_what_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "live.journal"
    listed = [candidate(FUSED, 1.5), candidate(FREEZE), candidate(ONE)]
    first = TuningStudy(listed, file)
    one = first.ask()
    assert one is not None
    first.tell(one, found(-0.02), "undone", "slower")
    first.ask()  # killed meanwhile
    second = TuningStudy(listed, file)
    assert asked(second, gc_freeze=0.1) == ["gc.freeze", "threads.intra_op(threads=1)", "optimizer.fused"]
    states = [trial.state.name for trial in in_journal(file).trials]
    assert states == ["COMPLETE", "COMPLETE", "FAIL", "FAIL"]


def test_other_candidates_are_another_study_in_the_same_journal(tmp_path: Path) -> None:
    file = tmp_path / "live.journal"
    asked(TuningStudy([candidate(FUSED)], file), optimizer_fused=0.1)
    asked(TuningStudy([candidate(FUSED), candidate(ONE)], file), optimizer_fused=0.1)
    assert len(JournalStorage(JournalFileBackend(str(file))).get_all_studies()) == 2
    # What is kept already has its place in the arm, so that a second tuning is the same study.
    asked(TuningStudy([candidate(ONE)], file, on=[FUSED]), threads_intra_op=0.1)
    assert len(JournalStorage(JournalFileBackend(str(file))).get_all_studies()) == 2


@pytest.mark.parametrize("content", [b"{no journal\n{}\n", b'{"op_code": 99}\n', b"[]\n"])
def test_a_journal_that_can_t_be_read_is_set_aside(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "live.journal"
    file.write_bytes(content)
    assert asked(TuningStudy([candidate(FUSED)], file), optimizer_fused=0.1) == ["optimizer.fused"]
    assert file.with_suffix(".unread").read_bytes() == content
    assert len(in_journal(file).trials) == 1


def test_a_journal_that_can_t_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert asked(TuningStudy([candidate(FUSED)], tmp_path / "file" / "x.journal")) == ["optimizer.fused"]

    study = TuningStudy([candidate(FUSED), candidate(FREEZE)], tmp_path / "live.journal")

    def full(self: object, logs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(JournalFileBackend, "append_logs", full)
    assert asked(study, optimizer_fused=0.1) == ["optimizer.fused", "gc.freeze"]


def test_what_conflicts_with_the_candidate_is_not_in_its_arm(tmp_path: Path) -> None:
    file = tmp_path / "live.journal"
    study = TuningStudy([candidate(FUSED, 1.5), candidate(FOREACH)], file)
    asked(study, optimizer_fused=0.3, optimizer_foreach=0.0)
    last = in_journal(file).trials[-1]
    assert last.params == {"optimizer.foreach": "on", "optimizer.fused": "off"}
    assert last.value == pytest.approx(0.3)


def test_a_tuning_writes_its_trials_into_the_journal(tmp_path: Path) -> None:
    from autobrrr.tuner.live_search import tune
    from autobrrr.tuner.tune_settings import TuneSettings

    file = tmp_path / "live.journal"
    job = SimulatedJob(effects={"optimizer.fused": Effect(speed=1.4)})
    result = tune(job, settings=TuneSettings(only=("optimizer.fused", "gc.freeze"), journal=file))
    trials = in_journal(file).trials
    assert [trial.user_attrs["outcome"] for trial in trials] == [
        each.outcome for each in result.trials if each.interval is not None
    ]
    assert {trial.user_attrs["candidate"] for trial in trials} == {"optimizer.fused", "gc.freeze"}


def test_optuna_comes_with_the_first_study() -> None:
    code = (
        "import sys; from autobrrr.tuner import live_search; from autobrrr.sidecar import daemon;"
        "assert 'optuna' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
