"""Bursts, patches, remedies, the tap and the looks at frames, each by itself."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.live_torch.patches import Patch, patched, prepared, take_off_all
from autobrrr.injected.loop.root_modules import RootSearch
from autobrrr.injected.loop.step_hook import Hot, make_tap
from autobrrr.injected.measure.stack_sampler import Place, place_of
from autobrrr.injected.phases.batch_shapes import batch_size
from autobrrr.injected.phases.loader_watch import LoaderWatch
from autobrrr.injected.phases.sampling_schedule import BUDGET, Bursts
from autobrrr.injected.remedies.active_remedies import ActiveRemedies
from autobrrr.injected.remedies.registry import Option, Refused, Remedy, Undo, WatchedUndo


@pytest.mark.parametrize("step_ns", [100_000, 1_000_000, 20_000_000, 1_000_000_000])
def test_sampling_stays_within_its_budget_whatever_the_step(step_ns: int) -> None:
    bursts = Bursts()
    count = 20_000
    sampled = [bursts.wants(seq, step_ns) for seq in range(count)]
    bursts_begun = sum(now and not before for before, now in zip([False, *sampled], sampled, strict=False))
    one_burst = bursts.steps * bursts.cost_ns + (bursts.steps + 1) * bursts.boundary_ns
    spent = bursts_begun * one_burst
    assert sum(sampled) >= bursts.steps
    assert spent <= 1.1 * BUDGET * count * step_ns + one_burst
    assert sum(sampled) <= count / 2


def test_a_cadence_that_is_asked_for_is_only_made_sparser() -> None:
    bursts = Bursts()
    bursts.ask(100, 3, 0)
    assert [seq for seq in range(210) if bursts.wants(seq, 1_000_000_000)] == [
        0,
        1,
        2,
        100,
        101,
        102,
        200,
        201,
        202,
    ]
    bursts.ask(8, 4, 210)
    assert bursts.spacing(100_000) > 8


def test_the_step_before_a_burst_is_looked_at_and_plain_ones_are_not() -> None:
    bursts = Bursts()
    bursts.begin_at(50)
    assert not bursts.wants(10, 1_000_000)
    assert bursts.look_at(10) == 49


def test_long_steps_are_sampled_at_once_and_short_ones_after_a_rest() -> None:
    short, long = Bursts(), Bursts()
    for bursts, step_ns in ((short, 1_000_000), (long, 300_000_000)):
        bursts.rest(20, 8, step_ns)
    assert [seq for seq in range(20, 32) if short.wants(seq, 1_000_000)] == [28, 29, 30, 31]
    assert [seq for seq in range(20, 32) if long.wants(seq, 300_000_000)] == [20, 21, 22, 23, 28, 29, 30, 31]


def test_a_rest_is_left_out_only_where_each_step_might_be_sampled() -> None:
    bursts = Bursts()
    limit_ns = int((bursts.cost_ns + bursts.boundary_ns) / BUDGET)
    bursts.rest(20, 8, limit_ns + 1)
    assert bursts.wants(20, limit_ns)
    bursts.rest(40, 8, limit_ns - 1)
    assert not bursts.wants(47, limit_ns)


class Owner:
    def speak(self) -> str:
        return "owner"


def loud(original: object) -> object:
    def speak(self: Owner) -> str:
        return original(self) + "!"  # type: ignore[operator]

    return speak


def test_the_very_object_is_put_back() -> None:
    before = list(vars(Owner).items())
    patches = patched(Owner, "speak", loud)
    assert Owner().speak() == "owner!"
    assert take_off_all(patches) == []
    assert [(name, id(value)) for name, value in vars(Owner).items()] == [
        (name, id(value)) for name, value in before
    ]


def test_a_patch_over_ours_stays_and_ours_is_named() -> None:
    original = vars(Owner)["speak"]
    (patch,) = patched(Owner, "speak", loud)
    ours = Owner.speak
    theirs = loud(ours)
    Owner.speak = theirs  # type: ignore[method-assign, assignment]
    try:
        assert take_off_all([patch]) == ["Owner.speak"]
        assert vars(Owner)["speak"] is theirs
    finally:
        Owner.speak = original  # type: ignore[method-assign]


def test_what_somebody_patched_between_two_bursts_is_wrapped_anew() -> None:
    original = vars(Owner)["speak"]
    (patch,) = prepared(Owner, "speak", loud)
    theirs = loud(original)
    Owner.speak = theirs  # type: ignore[method-assign, assignment]
    try:
        patch.put_on()
        assert Owner().speak() == "owner!!"
        assert patch.take_off()
        assert vars(Owner)["speak"] is theirs
    finally:
        Owner.speak = original  # type: ignore[method-assign]


def test_an_attribute_that_is_not_the_owners_own_is_left_alone() -> None:
    class Heir(Owner):
        pass

    assert prepared(Heir, "speak", loud) == []
    assert prepared(None, "speak", loud) == []
    assert isinstance(Patch(Owner, "speak", loud), Patch)


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
        return Remedy(
            name=name,
            apply=apply,
            treats=("overhead",),
            reach="live",
            cls=cls,
            doc="",
            targets=targets,
            options=options,
        )


@pytest.fixture
def switches() -> Switches:
    return Switches()


@pytest.fixture
def job() -> Job:
    return Job(types.ModuleType("torch"))


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


def test_what_a_remedy_needs_to_stay_as_it_is_is_left_alone_in_a_session(
    switches: Switches, job: Job
) -> None:
    code = dataclasses.replace(switches.remedy("code", ("x",)), needs_steady=("threads",))
    threads = switches.remedy("threads", ("threads",))
    active = levers_of(code, threads)
    active.apply(job, "code", {})
    with pytest.raises(Refused, match="holds threads"):
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


def test_a_target_that_is_held_is_refused_until_it_is_free(switches: Switches, job: Job) -> None:
    active = levers_of(switches.remedy("a", ("x",)), switches.remedy("b", ("x", "y")))
    applied = active.apply(job, "a", {})
    with pytest.raises(Refused, match=r"a \(token 1\) holds x"):
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
    assert (lost.remedy, lost.token) == ("b", 2)
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


def test_remedies_of_the_recipe_outlive_the_session(switches: Switches, job: Job) -> None:
    active = levers_of(
        switches.remedy("a", ("x",)), switches.remedy("gc.b", ("y",)), switches.remedy("c", ("z",))
    )
    active.apply(job, "a", {}, planned=True)
    active.apply(job, "gc.b", {})
    active.apply(job, "c", {})
    active.undo_anywhere()
    assert switches.log[-1] == "-gc.b"
    active.undo_all()
    assert [applied.remedy.name for applied in active.applied] == ["a"]


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
    with pytest.raises(Refused, match="its class is rounding on this job; --allow rounding"):
        active.apply(job, "a", {}, allowed=["bitwise"])
    assert (switches.log, active.arm, active.applied) == ([], 0, [])
    assert active.apply(job, "a", {}, allowed=["bitwise", "rounding"]).cls == "rounding"


def test_a_class_that_the_options_widen_past_what_is_allowed_is_off_before_a_step_runs(job: Job) -> None:
    log: list[str] = []
    remedy = Remedy(
        name="a",
        apply=lambda job, options: WatchedUndo(lambda: log.append("-a"), cls="changes-training"),
        treats=(),
        reach="live",
        cls="bitwise",
        doc="",
    )
    active = levers_of(remedy)
    with pytest.raises(Refused, match="its class is changes-training"):
        active.apply(job, "a", {}, allowed=["bitwise"])
    assert (log, active.applied) == (["-a"], [])


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

    fused = Remedy(
        name="a", apply=apply, treats=(), reach="live", cls="bitwise", doc="", targets=("optimizer.x",)
    )
    active = levers_of(fused)
    active.apply(job, "a", {})
    active.renew(job)
    assert active.undo_all() == []
    assert tries == ["+", "+", "-"]


def test_a_remedy_that_says_it_does_badly_is_named_with_its_reason(job: Job) -> None:
    said: list[str | None] = [None]
    off: list[str] = []
    released: list[types.ModuleType] = []

    def apply(job: Job, options: Mapping[str, object]) -> Undo:
        return WatchedUndo(lambda: off.append("off"), lambda: said[0], "stream")

    careful = Remedy(
        name="compile.a",
        apply=apply,
        treats=("overhead",),
        reach="live",
        cls="rounding",
        doc="",
        targets=("module.code",),
        release=released.append,
    )
    active = levers_of(careful)
    assert not active.watched
    applied = active.apply(job, "compile.a", {})
    assert (applied.cls, active.watched, active.compiled, active.troubles()) == ("stream", True, True, [])
    said[0] = "compiled nine times"
    assert active.troubles() == [(applied, "compiled nine times")]
    active.undo(applied)
    assert (off, released, active.compiled) == (["off"], [], False)  # the next switching on is a quick one
    active.undo_all()
    assert released == [job.torch]
    active.undo_all()
    assert released == [job.torch]


def test_what_a_remedy_of_the_recipe_needs_is_not_let_go(switches: Switches, job: Job) -> None:
    released: list[types.ModuleType] = []
    kept = dataclasses.replace(switches.remedy("a", ("x",)), release=released.append)
    active = levers_of(kept)
    active.apply(job, "a", {}, planned=True)
    active.undo_all()
    assert released == []


class Fires:
    """An optimizer and a clock for the tap."""

    def __init__(self) -> None:
        self.now = 1000
        self.hot = Hot(900)
        self.hot.anchor, self.hot.left = id(self), 3
        self.slow: list[int] = []
        self.failed: list[BaseException] = []
        self.original: list[object] = []
        self.tap = make_tap(self.hot, self.original.append, self.go_slow, self.failed.append, self.clock)

    def clock(self) -> int:
        self.now += 10
        return self.now

    def go_slow(self, _: object, now: int) -> None:
        self.slow.append(now)


def test_plain_steps_are_noted_until_the_slow_way_is_due() -> None:
    fires = Fires()
    for _ in range(5):
        fires.tap(fires)
    assert fires.hot.times == [1010, 1020, 1030]
    assert fires.hot.steps == 3
    assert fires.slow == [1040, 1050]


def test_optimizers_within_a_step_pass_for_nothing() -> None:
    fires = Fires()
    other = object()
    fires.hot.others, fires.hot.passes = frozenset({id(other)}), 2
    for _ in range(3):
        fires.tap(other)
    assert fires.hot.times == []
    assert len(fires.slow) == 1


def test_another_optimizer_and_a_poke_go_the_slow_way() -> None:
    fires = Fires()
    fires.tap(object())
    fires.hot.poke()
    fires.tap(fires)
    assert len(fires.slow) == 2
    assert fires.hot.times == []


def test_an_error_of_ours_is_reported_and_the_original_called_all_the_same() -> None:
    fires = Fires()

    def wrong(*_: object) -> None:
        raise ValueError("planted")

    make_tap(fires.hot, fires.original.append, wrong, fires.failed.append, fires.clock)(object())
    assert isinstance(fires.failed[0], ValueError)
    assert len(fires.original) == 1


def test_batch_sizes_are_found_where_batches_keep_them() -> None:
    class Shaped:
        def __init__(self, *shape: int) -> None:
            self.shape = shape

    assert batch_size((Shaped(8, 3),)) == 8
    assert batch_size((), {"input_ids": Shaped(4, 9)}) == 4
    assert batch_size(({"x": [Shaped(5)]},)) == 5
    assert batch_size((Shaped(), "text", Shaped(6, 2))) == 6
    assert batch_size(("text", 3)) == -1


def test_a_queue_is_empty_only_if_the_next_batch_has_not_come_either() -> None:
    class Queue:
        def __init__(self) -> None:
            self.queue: list[int] = []

    class Iterator:
        def __init__(self) -> None:
            self._num_workers, self._prefetch_factor = 2, 2
            self._task_info: dict[int, tuple[int, ...]] = {3: (0,)}
            self._rcvd_idx = 3
            self._data_queue = Queue()

    iterator = Iterator()
    watch = LoaderWatch()
    assert watch.queue_empty() is None
    watch.saw(iterator)
    assert watch.queue_empty() is True
    iterator._task_info[3] = (0, 99)
    assert watch.queue_empty() is False
    iterator._task_info[3] = (0,)
    iterator._data_queue.queue.append(1)
    assert watch.queue_empty() is False
    del iterator._data_queue
    assert watch.queue_empty() is None


def test_a_place_is_the_innermost_frame_of_the_users_own_code() -> None:
    code = compile("def users(call):\n    return call()\n", "/home/somebody/train.py", "exec")
    names: dict[str, object] = {}
    exec(code, names)
    inner = compile(
        "def wrapper(look):\n    return look()\n", "/x/site-packages/torch/optim/optimizer.py", "exec"
    )
    exec(inner, names)
    wrapper, users = names["wrapper"], names["users"]
    line = sys._getframe().f_lineno + 1
    found = users(lambda: wrapper(lambda: place_of(sys._getframe(1), ("/usr/lib/",))))  # type: ignore[operator]
    assert found == (
        f"{__file__.rsplit('/', 1)[-1]}:{line} <lambda>",
        "optimizer",
        False,
        False,
    )


def test_the_users_code_that_an_optimizer_calls_is_no_work_of_the_optimizers() -> None:
    names: dict[str, Any] = {}
    for file, name in (
        ("/x/site-packages/torch/optim/adam.py", "step"),
        ("/x/site-packages/torch/optim/optimizer.py", "wrapper"),
        ("/home/somebody/train.py", "own"),
    ):
        exec(compile(f"def {name}(*calls):\n    return calls[0](*calls[1:])\n", file, "exec"), names)
    wrapper, step, own = (names[name] for name in ("wrapper", "step", "own"))

    def look() -> Place:
        return place_of(sys._getframe(), ("/usr/lib/", __file__))

    assert own(wrapper, step, look)[1] == "optimizer"
    assert own(wrapper, step, own, look)[1] == "other"
    assert own(wrapper, own, look)[1] == "optimizer", "an optimizer of the user's own"


def test_a_place_in_a_collective_is_told_from_the_loops_own_work() -> None:
    names: dict[str, object] = {}
    torch_file = "/x/site-packages/torch/distributed/distributed_c10d.py"
    exec(compile("def all_reduce(look):\n    return look()\n", torch_file, "exec"), names)
    exec(compile("def step(call, look):\n    return call(look)\n", "/home/somebody/train.py", "exec"), names)
    # Not a lambda of this file: its frame would be the innermost one of the user's.
    foreign = ("/usr/lib/", __file__)
    look = lambda: place_of(sys._getframe(), foreign)  # noqa: E731
    assert names["step"](names["all_reduce"], look) == ("train.py:2 step", "other", False, True)  # type: ignore[operator]
    assert names["step"](lambda own: own(), look) == ("train.py:2 step", "other", False, False)  # type: ignore[operator]


def test_a_place_in_a_compiled_function_is_no_code_between_the_phases() -> None:
    names: dict[str, object] = {}
    exec(compile("def enter(look):\n    return look()\n", "/x/torch/_dynamo/eval_frame.py", "exec"), names)
    exec(compile("def step(call, look):\n    return call(look)\n", "/home/somebody/train.py", "exec"), names)
    look = lambda: place_of(sys._getframe(), ("/usr/lib/", "/x/", __file__))  # noqa: E731
    assert names["step"](names["enter"], look)[:2] == ("train.py:2 step", "forward")  # type: ignore[operator]


def test_only_calls_from_outside_modules_are_roots(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.ModuleType("torch.nn.modules.module")
    hooks: dict[object, object] = {}

    class Module:
        def __init__(self, *inner: Module) -> None:
            self.inner = inner

        def _call_impl(self) -> None:
            for hook in list(hooks.values()):
                hook(self, ())  # type: ignore[operator]
            for one in self.inner:
                one._call_impl()

    fake.__dict__.update(_global_forward_pre_hooks=hooks, Module=Module)
    monkeypatch.setitem(sys.modules, "torch.nn.modules.module", fake)
    leaf = Module()
    root = Module(leaf, Module(leaf))
    failed: list[BaseException] = []
    search = RootSearch(job, 0, failed.append)
    assert search.put_on()
    root._call_impl()
    search.take_off()
    assert job.roots == [root]
    assert hooks == {}
    assert failed == []
