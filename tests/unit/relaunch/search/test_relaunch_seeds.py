"""The diagnosis of the command as given says where the search begins."""

from __future__ import annotations

import pytest

from autobrrr.records import Advice, Regime
from autobrrr.relaunch.search.param_specs import remedy_parameter
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Parameter, Result, Space
from autobrrr.relaunch.search.seed_points import Hints, seeds


def parameter(name: str, levels: tuple[int | str | None, ...], given: int = 0) -> Parameter:
    kind = "variable" if name.startswith("env:") else "flag"
    return Parameter(
        name=name,
        kind=kind,  # type: ignore[arg-type]
        levels=levels,
        given=given,
        ordered=True,
        cls="changes-training",
    )


SPACE = Space(
    parameters=(
        parameter("--batch-size", (8, 16, 32, 64, 128), 1),
        parameter("--num-workers", (0, 1, 2, 4, 8)),
        parameter("env:OMP_NUM_THREADS", (None, "1", "2")),
        remedy_parameter("optimizer.fused"),
        remedy_parameter("gc.freeze"),
    )
)


def advice(remedy: str) -> Advice:
    return Advice(remedy=remedy, why="", expected=None, reach="live", class_="rounding")


def said(regime: Regime, *remedies: str) -> list[list[str]]:
    hints = Hints(regime=regime, advice=tuple(advice(each) for each in remedies), cores=4)
    return [SPACE.kept(point) for point in seeds(SPACE, hints)]


@pytest.mark.parametrize(
    ("regime", "remedies", "first"),
    [
        ("input", (), [["--num-workers=4"]]),
        ("memory", ("gc.freeze",), [["gc.freeze"]]),
        ("memory", ("threads.intra_op",), [["env:OMP_NUM_THREADS=1"]]),
        ("underfilled", (), [["--batch-size=64"]]),
        ("unknown", (), []),
        ("compute", ("precision.tf32",), []),
    ],
)
def test_a_regime_and_its_advice_name_a_point(
    regime: Regime, remedies: tuple[str, ...], first: list[list[str]]
) -> None:
    assert said(regime, *remedies) == first


def test_a_limit_names_a_point_where_no_regime_does() -> None:
    hints = Hints(regime="mixed", limit="input", cores=4)
    assert [SPACE.kept(point) for point in seeds(SPACE, hints)] == [["--num-workers=4"]]
    assert seeds(SPACE, Hints(regime="mixed", limit="kernels", cores=4)) == []


def test_all_together_come_first_then_each_by_itself_as_the_advice_ranks_them() -> None:
    found = said("overhead", "gc.freeze", "optimizer.fused")
    together = ["--batch-size=64", "env:OMP_NUM_THREADS=1", "optimizer.fused", "gc.freeze"]
    assert found == [
        together,
        ["--batch-size=64"],
        ["env:OMP_NUM_THREADS=1"],
        ["gc.freeze"],
        ["optimizer.fused"],
    ]


def test_what_can_t_be_combined_is_no_seed() -> None:
    space = Space(parameters=(remedy_parameter("optimizer.fused"), remedy_parameter("optimizer.foreach")))
    hints = Hints(advice=(advice("optimizer.fused"), advice("optimizer.foreach")))
    assert sorted(seeds(space, hints)) == [(0, 1), (1, 0)]


def test_the_search_begins_with_its_seeds_also_in_a_large_space() -> None:
    search = Search(SPACE, trials=4)
    wanted = seeds(SPACE, Hints(regime="input", cores=4))
    search.prefer([SPACE.base, *wanted])
    assert search.ask() == wanted[0]
    search.tell(Result(point=wanted[0], value=0.1, kind="measured"))
    assert search.ask() != wanted[0]
