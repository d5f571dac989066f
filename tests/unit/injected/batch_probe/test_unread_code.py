"""Code of the job's that was not read is stopped before its first line, and nothing else is."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from autobrrr.injected.job_code.bytecode_names import codes
from autobrrr.injected.job_code.unread_code import ReadCode, UnreadCode, unread_code_refused
from autobrrr.injected.live_torch.torch_types import Abstain
from support.batch_probe.read_code import read, refusals
from support.batch_probe.shadow import supervised
from support.batch_probe.shadow_loop import Kind, train

RAN: list[str] = []
Point = namedtuple("Point", "x y")


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def runs() -> None:
    RAN.append("called")


class Ordered:
    def __lt__(self, other: object) -> bool:
        RAN.append("ordered")
        return True


class Goes:
    def __del__(self) -> None:
        RAN.append("gone")


def counts() -> Iterator[int]:
    try:
        for at in range(9):
            RAN.append(f"item {at}")
            yield at
    finally:
        RAN.append("closed")


def ends_everything() -> None:
    try:
        runs()
    except BaseException:  # noqa: BLE001
        RAN.append("ended")
    runs()


def stopped(work: Callable[[], object], *known: Callable[..., object]) -> str:
    allowed = ReadCode()
    for each in (work, *known):
        for code in codes(each.__code__):
            allowed.add(code)
    try:
        with unread_code_refused(allowed):
            work()
    except UnreadCode as met:
        return met.function.__qualname__
    finally:
        assert sys.getprofile() is None
        assert gc.isenabled()
    return ""


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (lambda: runs(), "runs"),  # noqa: PLW0108
        (lambda: list(map(lambda each: each(), [runs])), "runs"),  # noqa: C417
        (lambda: eval("runs()"), "<module>"),
        (lambda: next(counts()), "counts"),
    ],
)
def test_no_line_of_it_runs(work: Callable[[], object], name: str) -> None:
    assert stopped(work).endswith(name)
    assert RAN == []


def test_a_method_that_c_calls_does_not_run() -> None:
    pair = [Ordered(), Ordered()]
    assert stopped(lambda: min(pair)).endswith("__lt__")
    assert RAN == []


def test_what_was_read_and_what_is_a_librarys_runs() -> None:
    assert stopped(lambda: runs(), runs) == ""  # noqa: PLW0108
    assert stopped(lambda: nn.Linear(2, 2)(torch.ones(2))) == ""
    assert stopped(lambda: Point(1, 2)._replace(x=3)) == ""
    assert RAN == ["called"]


def test_what_python_calls_as_something_goes_runs_and_is_told() -> None:
    mine = [Goes()]
    assert stopped(lambda: mine.clear()).endswith("__del__")  # noqa: PLW0108
    assert RAN == ["gone"]


def test_a_reference_to_what_goes_is_called() -> None:
    kept = [nn.Linear(1, 1)]
    watched = weakref.ref(kept[0], lambda _: RAN.append("told"))
    assert stopped(lambda: kept.clear()).endswith("<lambda>")  # noqa: PLW0108
    assert "told" in RAN
    assert watched() is None


def test_a_generator_that_has_begun_does_not_end() -> None:
    begun = counts()
    next(begun)
    assert stopped(lambda: (next(begun), abs(1))).endswith("counts")
    assert next(begun) == 2
    assert RAN == ["item 0", "item 1", "item 2"]


def test_a_generator_is_closed_all_the_same() -> None:
    begun = [counts()]
    next(begun[0])
    stopped(lambda: begun.clear())  # noqa: PLW0108
    assert RAN == ["item 0", "closed"]


def test_nothing_is_collected_meanwhile() -> None:
    circle = Goes()
    circle.itself = circle  # type: ignore[attr-defined]
    del circle
    assert stopped(lambda: [[] for _ in range(5_000)]) == ""
    assert RAN == []
    gc.collect()
    assert "gone" in RAN


def test_code_that_ends_every_exception_is_told_all_the_same() -> None:
    assert stopped(lambda: ends_everything(), ends_everything) == "runs"  # noqa: PLW0108


def test_a_profile_function_of_the_jobs_stays() -> None:
    def profile(*_: object) -> None:
        pass

    sys.setprofile(profile)
    try:
        with pytest.raises(Abstain, match="profile function"), unread_code_refused(ReadCode()):
            pass
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)


class Doubles(nn.Module):
    """Makes code anew in each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return next(iter([FUNCTIONS[0]("lambda x: 2 * x")]))(x)  # type: ignore[no-any-return]


FUNCTIONS = [eval]


def test_code_that_is_made_anew_in_each_call_ends_in_a_reason() -> None:
    with pytest.raises(UnreadCode, match="to which nothing in it leads"):
        refusals(Doubles())


def decorated(call: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def around(_: object, x: torch.Tensor) -> torch.Tensor:
        return call(x)

    return around


def prints(x: torch.Tensor) -> torch.Tensor:
    print("called")
    return x


class Twice(nn.Module):
    first = decorated(torch.relu)
    second = decorated(prints)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def test_functions_of_one_code_are_read_each_with_what_it_is_made_around() -> None:
    assert any("calls print" in each.what for each in read(Twice()).findings.refusals)


class Watches:
    def told(self, key: int, _: object) -> None:
        RAN.append(f"told {key}")


def test_every_way_of_being_told_that_something_goes_is_told() -> None:
    one, other = [nn.Linear(1, 1)], [nn.Linear(1, 1)]
    watched = weakref.ref(one[0], functools.partial(Watches().told, 1))
    weakref.finalize(other[0], lambda: RAN.append("finalized"))
    stopped(lambda: one.clear())  # noqa: PLW0108
    stopped(lambda: other.clear())  # noqa: PLW0108
    assert RAN == ["told 1", "finalized"]
    assert watched() is None


class ByName(nn.Module):
    """Sets an attribute for as long as it runs; what it calls meanwhile has a name that it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.last = nn.Linear(12, 777), nn.Linear(777, 4)
        self.mask, self.held, self.which = None, Doubling(), "doubled"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mask = x > 0
        x = getattr(self.held, "is_" + self.which)(self.last(torch.relu(self.wide(x))))
        self.mask = None
        return x


class Doubling:
    def is_doubled(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_a_probe_goes_on_after_it_and_no_step_finds_what_a_stopped_replay_made() -> None:
    alive: list[int] = []

    def make() -> Kind:
        kind = supervised(ByName(), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))
        step = kind.step

        def counted() -> None:
            alive.append(sum(type(one) is torch.Tensor and one.shape == (8, 777) for one in gc.get_objects()))
            step()

        kind.step = counted
        return kind

    gc.disable()
    try:
        outcome = train(make, 150, probe=True)
    finally:
        gc.enable()
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok"
    assert set(alive) == {0}
