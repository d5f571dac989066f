"""What a remedy does to a job on a GPU, where the host's clock gets it wrong; for tests and a benchmark."""

from dataclasses import dataclass

from autobrrr.records import from_registry
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.comparison import Comparing, Comparison, compare
from autobrrr.tuner.job_under_test import StepClock
from autobrrr.tuner.stop_rules import proof
from support.simulated.virtual_gpu import MS, US, GpuStep, VirtualGpuJob, truth_ns

REMEDY = "optimizer.fused"
CHOICE = from_registry(REMEDY)
HORIZON_NS = 1_800_000_000_000


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A step without the remedy, and with it."""

    name: str
    without: GpuStep
    with_it: GpuStep

    @property
    def truth(self) -> float:
        return truth_ns(self.without) / truth_ns(self.with_it)


def _graph(entries: int, graph_ns: float, item_every: int = 0) -> GpuStep:
    return GpuStep(entries=entries, graph_ns=graph_ns, item_every=item_every)


SCENARIOS = (
    Scenario(name="a graph in 1 entry", without=GpuStep(), with_it=_graph(1, 50 * US)),
    Scenario(name="a graph in 50 entries", without=GpuStep(), with_it=_graph(50, 30 * US)),
    Scenario(name="a graph in 200 entries", without=GpuStep(), with_it=_graph(200, 10 * US)),
    Scenario(name="a graph in 400 entries", without=GpuStep(), with_it=_graph(400, 4 * US)),
    Scenario(
        name="a graph, .item() every step", without=GpuStep(item_every=1), with_it=_graph(1, 300 * US, 1)
    ),
    Scenario(
        name="a graph, .item() every 10", without=GpuStep(item_every=10), with_it=_graph(1, 300 * US, 10)
    ),
    Scenario(name="kernels half as long", without=GpuStep(), with_it=GpuStep(kernels_ns=2.5 * MS)),
    Scenario(
        name="100 launches, .item() every 10, kernels half as long",
        without=GpuStep(launches=100, item_every=10),
        with_it=GpuStep(launches=100, item_every=10, kernels_ns=2.5 * MS),
    ),
    Scenario(
        name="100 launches, .item() every 50, kernels half as long",
        without=GpuStep(launches=100, item_every=50),
        with_it=GpuStep(launches=100, item_every=50, kernels_ns=2.5 * MS),
    ),
    Scenario(
        name="20 ms, 1500 launches, kernels half as long",
        without=GpuStep(launches=1500, kernels_ns=20 * MS),
        with_it=GpuStep(launches=1500, kernels_ns=10 * MS),
    ),
    Scenario(
        name="host-bound, a graph",
        without=GpuStep(launches=1500, kernels_ns=3 * MS),
        with_it=GpuStep(entries=1, graph_ns=50 * US, kernels_ns=3 * MS),
    ),
    Scenario(name="100 launches, nothing", without=GpuStep(launches=100), with_it=GpuStep(launches=100)),
    Scenario(name="a fused optimizer", without=GpuStep(), with_it=GpuStep(launches=250, kernels_ns=4.9 * MS)),
    # While the queue drains, these look like their kernels: the host's time shows only then.
    Scenario(
        name="kernels half as long, the host slow by then",
        without=GpuStep(launches=100),
        with_it=GpuStep(launches=100, kernels_ns=2.5 * MS, host_ns=40 * US),
    ),
    Scenario(
        name="off a graph, the host slow by then",
        without=_graph(5, 30 * US),
        with_it=GpuStep(launches=100, kernels_ns=4 * MS, host_ns=45 * US),
    ),
)
NOTHING = Scenario(name="nothing", without=GpuStep(launches=100), with_it=GpuStep(launches=100))


def compared(
    scenario: Scenario,
    *,
    seed: int = 0,
    clock: StepClock = "device",
    noise: float = 0.02,
    stamped: bool = True,
) -> Comparison:
    """One comparison with the product's own blocks, interval and rule."""
    effects = {REMEDY: scenario.with_it}
    job = VirtualGpuJob(
        step=scenario.without, effects=effects, seed=seed, clock=clock, noise=noise, stamped=stamped
    )
    return compare(
        job,
        ArmSwitch(job),
        Comparing(
            without=(),
            with_it=(CHOICE,),
            rule=proof(0.01, HORIZON_NS),
            deadline_ns=int((120_000 if stamped else 12_000) * MS),  # without stamps nothing is decided
            step_ns=truth_ns(scenario.without, 50),
            seed=seed,
        ),
    )
