"""Remedies that are on: their order, their targets and classes, and what outlives a session."""

import dataclasses
import types
from collections.abc import Mapping
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.remedies import active_remedies
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Option, Refused, Remedy, Undo, WatchedUndo
from support.agent.remedies import remedy, training
from support.simulated.bare_torch import bare_torch


class Switches:
    """Remedies that write down what happens to them."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def remedy(
        self, name: str, targets: tuple[str, ...], *, fails: bool = False, cls: str = "bitwise"
    ) -> Remedy:
        def apply(job: Job, options: Mapping[str, object]) -> Undo:
            self.log.append(f"+{name}")

            def undo() -> None:
                self.log.append(f"-{name}")
                if fails:
                    raise RuntimeError("stuck")

            return undo

        options = (Option(name="depth", kind="int", low=1, high=4),)
        return remedy(name, apply, cls=cls, targets=targets, options=options)


@pytest.fixture
def switches() -> Switches:
    return Switches()


@pytest.fixture
def job() -> Job:
    return Job(bare_torch())


def levers_of(*remedies: Remedy) -> ActiveRemedies:
    return ActiveRemedies({remedy.name: remedy for remedy in remedies})


def test_remedies_are_undone_in_reverse_and_every_change_is_an_arm(switches: Switches, job: Job) -> None:
    active = levers_of(switches.remedy("a", ("x",)), switches.remedy("b", ("y",)))
    first = active.apply(job, "a", {})
    active.apply(job, "b", {"depth": 2})
    assert (first.token, active.arm) == (1, 2)
    assert active.undo_all() == []
    assert switches.log == ["+a", "+b", "-b", "-a"]
    assert active.arm == 4
    assert active.applied == []


def test_a_remedy_gets_the_defaults_of_the_options_that_are_not_given(job: Job) -> None:
    got: list[Mapping[str, object]] = []

    def apply(job: Job, options: Mapping[str, object]) -> Undo:
        got.append(options)
        return lambda: None

    ahead = Option(name="ahead", kind="int", default=4, low=1, high=8)
    active = levers_of(remedy("a", apply, targets=("x",), options=(ahead,)))
    assert active.apply(job, "a", {}).options == {}
    assert got == [{"ahead": 4}]


def test_what_a_remedy_needs_as_it_is_is_left_alone_in_a_session(switches: Switches, job: Job) -> None:
    code = dataclasses.replace(switches.remedy("code", ("x",)), needs_steady=("threads",))
    threads = switches.remedy("threads", ("threads",))
    active = levers_of(code, threads)
    active.apply(job, "code", {})
    with pytest.raises(Refused, match="uses threads"):
        active.apply(job, "threads", {})
    after = levers_of(code, threads)
    after.apply(job, "threads", {})
    after.apply(job, "code", {})
    recipe = levers_of(code, threads)
    recipe.apply(job, "threads", {}, planned=True)
    recipe.apply(job, "code", {})  # the recipe's threads stay as they are
    both = levers_of(code, threads)
    both.apply(job, "code", {}, planned=True)
    both.apply(job, "threads", {}, planned=True)
    assert len(both.applied) == 2


def test_what_needs_a_new_start_goes_on_by_a_recipe_alone(switches: Switches, job: Job) -> None:
    relaunch = dataclasses.replace(switches.remedy("a", ("x",)), reach="relaunch")
    with pytest.raises(Refused, match="needs a new start"):
        levers_of(relaunch).apply(job, "a", {})
    assert levers_of(relaunch).apply(job, "a", {}, planned=True).planned


def test_nothing_goes_on_while_the_job_captures_a_graph(
    switches: Switches, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_remedies, "capturing", lambda torch: True)
    with pytest.raises(Refused, match="captures a CUDA graph"):
        levers_of(switches.remedy("a", ("x",))).apply(job, "a", {})
    assert switches.log == []


def test_a_target_that_is_held_is_refused_until_it_is_free(switches: Switches, job: Job) -> None:
    active = levers_of(switches.remedy("a", ("x",)), switches.remedy("b", ("x", "y")))
    applied = active.apply(job, "a", {})
    with pytest.raises(Refused, match=r"a \(token 1\) uses x"):
        active.apply(job, "b", {})
    with pytest.raises(Refused):
        active.apply(job, "a", {})
    active.undo(applied)
    active.apply(job, "b", {})
    assert switches.log == ["+a", "-a", "+b"]


@pytest.mark.parametrize(
    "options", [{"depth": 0}, {"depth": 9}, {"depth": True}, {"depth": "2"}, {"width": 1}]
)
def test_options_that_do_not_fit_are_refused_before_anything_happens(
    switches: Switches, job: Job, options: dict[str, object]
) -> None:
    active = levers_of(switches.remedy("a", ()))
    with pytest.raises(Refused):
        active.apply(job, "a", options)
    assert switches.log == []
    assert active.arm == 0


def test_a_remedy_that_sticks_is_lost_and_the_others_are_undone(switches: Switches, job: Job) -> None:
    active = levers_of(switches.remedy("a", ("x",)), switches.remedy("b", ("y",), fails=True))
    active.apply(job, "a", {})
    active.apply(job, "b", {})
    (lost,) = active.undo_all()
    assert (lost["remedy"], lost["token"]) == ("b", 2)
    assert switches.log[-1] == "-a"


def test_a_job_that_makes_an_optimizer_in_each_step_is_kept_no_more_of_than_its_last(
    switches: Switches, job: Job
) -> None:
    active = levers_of(switches.remedy("a", ("optimizer.x",)))
    applied = active.apply(job, "a", {})
    for _ in range(100):
        active.renew(job)
    on = switches.log.count("+a") - switches.log.count("-a")
    assert on == 2  # for those of the beginning, and for those that came later
    active.undo(applied)
    assert switches.log.count("+a") == switches.log.count("-a")


@pytest.mark.parametrize(
    ("ranks", "planned", "cls", "targets", "goes"),
    [
        (2, True, "rounding", ("x",), False),
        (1, True, "rounding", ("x",), True),
        (2, True, "bitwise", ("x",), True),
        (2, True, "stream", ("loader.workers",), True),
        (2, False, "rounding", ("x",), True),
    ],
)
def test_what_the_recipe_rounds_in_all_ranks_is_not_undone_in_one(
    switches: Switches,
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ranks: int,
    planned: bool,
    cls: str,
    targets: tuple[str, ...],
    goes: bool,
) -> None:
    active = levers_of(switches.remedy("a", targets, cls=cls))
    applied = active.apply(job, "a", {}, planned=planned)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    with nullcontext() if goes else pytest.raises(Refused, match="one of 2 ranks"):
        active.may_go(job, applied)


def test_a_class_that_is_not_allowed_is_refused_before_it_is_applied(switches: Switches, job: Job) -> None:
    active = levers_of(switches.remedy("a", ("x",), cls="rounding"))
    with pytest.raises(Refused, match="its class is rounding on this job; a recipe of class rounding"):
        active.apply(job, "a", {}, allowed=["bitwise"])
    assert (switches.log, active.arm, active.applied) == ([], 0, [])
    assert active.apply(job, "a", {}, allowed=["bitwise", "rounding"]).remedy.cls == "rounding"


def test_what_is_on_for_optimizers_goes_on_for_one_that_comes_later(switches: Switches, job: Job) -> None:
    active = levers_of(switches.remedy("a", ("optimizer.implementation",)), switches.remedy("b", ("y",)))
    applied = active.apply(job, "a", {})
    active.apply(job, "b", {})
    active.renew(job)
    assert switches.log == ["+a", "+b", "+a"]
    assert active.arm == 2  # nothing that is compared has changed
    active.undo(applied)
    assert switches.log[3:] == ["-a", "-a"]
    active.renew(job)
    assert len(switches.log) == 5


def test_on_one_of_several_ranks_only_what_keeps_the_bits_goes_on_alone(
    switches: Switches, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    rounding = dataclasses.replace(switches.remedy("a", ("x",)), cls="rounding")
    feeds = dataclasses.replace(switches.remedy("c", ("loader.num_workers",)), cls="stream")
    larger = dataclasses.replace(switches.remedy("d", ("loader.batch_size",)), cls="changes-training")
    active = levers_of(rounding, switches.remedy("b", ("y",)), feeds, larger)
    for name in ("a", "d"):
        with pytest.raises(Refused, match=r"one of 2 ranks.*drift"):
            active.apply(job, name, {})
    active.apply(job, "b", {})
    active.apply(job, "c", {})  # its batches are its own in any case
    active.apply(job, "a", {}, planned=True)  # a recipe is in all ranks
    assert switches.log == ["+b", "+c", "+a"]


def test_a_later_optimizer_that_does_not_fit_is_left_alone(job: Job) -> None:
    tries: list[str] = []

    def apply(job: Job, options: Mapping[str, object]) -> Undo:
        tries.append("+")
        if len(tries) > 1:
            raise Refused("no fused kernel for it")
        return lambda: tries.append("-")

    active = levers_of(remedy("a", apply, targets=("optimizer.x",)))
    active.apply(job, "a", {})
    active.renew(job)
    assert active.undo_all() == []
    assert tries == ["+", "+", "-"]


def test_a_remedy_that_says_it_does_badly_is_named_with_its_reason(job: Job) -> None:
    said: list[str | None] = [None]
    off: list[str] = []
    released: list[types.ModuleType] = []

    def apply(job: Job, options: Mapping[str, object]) -> Undo:
        return WatchedUndo(lambda: off.append("off"), lambda: said[0])

    active = levers_of(
        remedy("compile.a", apply, cls="rounding", targets=("module.code",), release=released.append)
    )
    assert not active.watched
    applied = active.apply(job, "compile.a", {})
    assert (applied.remedy.cls, active.watched, active.compiled, active.troubles()) == (
        "rounding",
        True,
        True,
        [],
    )
    said[0] = "compiled nine times"
    assert active.troubles() == [(applied, "compiled nine times")]
    active.undo(applied)
    assert (off, released, active.compiled) == (["off"], [], False)  # the next switching on is a quick one
    active.undo_all()
    assert released == [job.torch]
    active.undo_all()
    assert released == [job.torch]


def test_remedies_of_the_recipe_outlive_the_session_with_what_they_need(switches: Switches, job: Job) -> None:
    released: list[types.ModuleType] = []
    kept = dataclasses.replace(switches.remedy("a", ("x",)), release=released.append)
    active = levers_of(kept, switches.remedy("b", ("y",)))
    active.apply(job, "a", {}, planned=True)
    active.apply(job, "b", {})
    active.undo_all()
    assert [applied.remedy.name for applied in active.applied] == ["a"]
    assert released == []


def test_an_optimizer_that_comes_later_never_widens_the_class_that_was_told() -> None:
    loop, active = training("Adam"), ActiveRemedies(REGISTRY)
    applied = active.apply(loop.job, "optimizer.foreach", {}, allowed=["bitwise", "rounding"])
    assert applied.remedy.cls == "bitwise"
    late = nn.Linear(4, 4)
    another = torch.optim.NAdam(late.parameters())
    for _ in range(2):
        late(torch.ones(2, 4)).sum().backward()
        another.step()
        loop.job.saw_optimizer(another)
        active.renew(loop.job)
    assert another.param_groups[0]["foreach"] is None
    assert active.undo_all() == []
