"""`explain`: every name has a text, typos find the nearest, and --help stays light."""

import argparse
from itertools import chain
from typing import get_args, get_type_hints

import pytest

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.cli import main
from autobrrr.cli.verbs import explain as verb
from autobrrr.diagnosis import glossary
from autobrrr.diagnosis.advice import job_settings, ledger_edits, script_edits
from autobrrr.diagnosis.glossary import EXPLANATIONS
from autobrrr.diagnosis.signals.signal_table import SIGNALS
from autobrrr.diagnosis.toml_rows import rows_beside
from autobrrr.diagnosis.verdict.agreement import AGREEMENT, TIMELINE
from autobrrr.errors import UsageError
from autobrrr.records import ExactnessClass, Limit, Phases, Reach, Regime, Trial
from autobrrr.records.proof_records import ProofVerdict, WorkRefusal
from autobrrr.report.pages.tuning_parts import TRIAL_HEADS
from autobrrr.report.text_rows import fitted
from autobrrr.sidecar.process.session_options import State
from autobrrr.trace.causes.host_causes import CAUSES
from autobrrr.trace.trace_records import IdleParts
from autobrrr_tui.panes import tuning_pane


def explained(*words: str) -> int:
    return verb.run(argparse.Namespace(word=words))


def test_every_signal_and_every_regime_is_explained() -> None:
    kinds = {name: entry.kind for name, entry in EXPLANATIONS.items()}
    assert {name for name, kind in kinds.items() if kind == "signal"} == set(SIGNALS)
    assert {name for name, kind in kinds.items() if kind == "regime"} == set(get_args(Regime))


def test_no_row_hides_another_of_the_same_name() -> None:
    rows = rows_beside(glossary.__file__)
    shown = {(entry.kind, name) for name, entry in EXPLANATIONS.items() if entry.kind != "remedy"}
    assert {(kind, name) for kind, table in rows.items() for name in table} == shown


def test_every_word_of_a_screen_is_explained() -> None:
    outcomes = get_args(get_type_hints(Trial)["outcome"])
    words = {
        *REGISTRY,
        *(name.replace("-", "_") for name in get_args(ExactnessClass)),
        *get_args(Reach),
        *outcomes,
        *(state.value for state in State),
        *(
            name.lstrip("#").partition(":")[0]
            for name in TRIAL_HEADS
            if name not in ("remedy", "why") and name[0] != "~"
        ),
        *Phases.__struct_fields__,
        *get_args(Limit),
        *get_args(ProofVerdict),
        *(code.value for code in WorkRefusal),
        *tuning_pane.STAGES.values(),
        *tuning_pane.STATES,
        *("queued", "manual"),
        *(field.removesuffix("_ns") for field in IdleParts.__struct_fields__),
        *CAUSES,
        *script_edits.EDITS,
        *(
            row["edit"]
            for module in (job_settings, ledger_edits)
            for row in rows_beside(module.__file__).values()
        ),
        *("where", "your_line", "over_time", "ranks", "machine", "best_bets", "cost_to_your_job", "next"),
        *chain.from_iterable((pair.first, pair.second) for pair in (*AGREEMENT, *TIMELINE)),
    }
    assert words - set(EXPLANATIONS) == set()


def test_a_remedy_is_explained_from_its_own_entry() -> None:
    found = EXPLANATIONS["threads.intra_op"]
    assert found.meaning == REGISTRY["threads.intra_op"].doc
    assert "overhead or compute or memory" in found.source
    assert "option threads: 1 to 4096" in found.guards
    assert "never run on a GPU yet" in EXPLANATIONS["precision.tf32"].guards[-1]


def test_an_edit_is_explained_by_a_line_before_and_after_its_class_and_its_table() -> None:
    for entry in EXPLANATIONS.values():
        assert [line[:2] for line in entry.example.splitlines()] == ["- ", "+ "] * (entry.kind == "edit")
    assert "class rounding" in EXPLANATIONS["edit.vectorize"].source
    assert EXPLANATIONS["edit.vectorize"].source.endswith("predicted to save: 50 % of its time")
    assert EXPLANATIONS["edit.float32"].source.endswith("predicted to save: half of kernels")
    assert EXPLANATIONS["edit.no_sync"].source.endswith("its gain is not predicted")


def test_every_word_of_a_limit_is_explained_as_one() -> None:
    for word in get_args(Limit):
        assert "As a limit" in EXPLANATIONS[word].meaning


def test_an_explanation_says_what_where_from_and_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for name in EXPLANATIONS:
        assert explained(name) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"{name} (")
        assert "From: " in out
        for width in (60, 80, 200):
            assert max(map(len, fitted(out, width).splitlines())) <= width, name
        assert ("Guards:" in out) == bool(EXPLANATIONS[name].guards)


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert explained() == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line[:3].strip() and line.startswith("  ")} == set(
        EXPLANATIONS
    )
    assert len(lines) == len(set(lines)), "a program reads a line for each"
    assert max(map(len, fitted("\n".join(lines), 60).splitlines())) <= 60


def test_dashes_capitals_and_blanks_are_forgiven(capsys: pytest.CaptureFixture[str]) -> None:
    assert explained("Batch-Probe") == 0
    assert capsys.readouterr().out.startswith("batch_probe (signal)")
    assert explained("Best", "bets:") == 0
    assert capsys.readouterr().out.startswith("best_bets (column)")


def test_a_typo_is_exit_2_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "lader_wait"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "did you mean loader_wait? `autobrrr explain` lists all words" in captured.err
    with pytest.raises(UsageError) as raised:
        explained("zzzzzz")
    assert "lists all" in raised.value.hint


def test_the_pairs_of_the_table_are_told() -> None:
    assert "traced_steps + batch_probe" in EXPLANATIONS["overhead"].source
    assert "kernel_time + traffic" in EXPLANATIONS["memory"].source
    assert EXPLANATIONS["sync"].source == (
        "named when these agree, on a GPU and in traces: time_split + blocked_calls"
    )
    open_ended = {name for name in get_args(Regime) if "these agree" not in EXPLANATIONS[name].source}
    assert open_ended == {"mixed", "unknown"}
