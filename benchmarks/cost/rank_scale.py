"""What do the ranks of a large job cost the command that sees them together?

    python -m benchmarks.cost.rank_scale [--ranks N]

Simulated ranks, of which one is late: CPU time of one comparison (each rank's steps as they come out of the
job's store, then who is late and why) and of the table that a watched job shows once a second. The share of a
core counts one comparison a minute, as the screen makes them at most.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import msgspec

from autobrrr.client.all_ranks import compared, timed_ranks, together
from autobrrr.diagnosis.ranks.rank_summary import packed, unpacked
from support.judged.rank_steps import RankModel, job
from support.screens import tui

STEPS = 64
LATE = 7
REPEATS = 5
COMPARED_EVERY_S, SHOWN_EVERY_S = 60.0, 1.0
HERE = 8  # ranks of this machine


def cpu_s(work: Callable[[], object]) -> float:
    """The median of some tries."""
    took = []
    for _ in range(REPEATS):
        began_s = time.process_time()
        work()
        took.append(time.process_time() - began_s)
    return statistics.median(took)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1024)
    size = parser.parse_args().ranks
    models = [
        RankModel(more_ms={"forward": 12.0}) if number == LATE else RankModel() for number in range(size)
    ]
    steps = [
        msgspec.structs.replace(each, counts=[10 + 3 * number for number in range(STEPS)])
        for each in job(models, STEPS)
    ]
    ranks = [tui.snapshot(pid=1000 + each, job=tui.job(rank=each, world_size=size)) for each in range(size)]
    ranks = [msgspec.structs.replace(each, ranks=None, straggler=None) for each in ranks]
    timed = {1000 + each: steps[each] for each in range(size)}
    texts = [text for each in timed_ranks(ranks, timed)[HERE:] if (text := packed(each, "node")) is not None]
    here, ours = ranks[:HERE], {pid: timed[pid] for pid in list(timed)[:HERE]}

    def compare() -> object:
        return compared(here, ours, [unpacked(text) for text in texts])

    found = compared(here, ours, [unpacked(text) for text in texts])
    if found is None or found.straggler.rank != LATE:
        raise AssertionError(found)
    told = [msgspec.structs.replace(each, ranks=found.ranks, straggler=found.straggler) for each in here]
    alone = [msgspec.structs.replace(each, straggler=None) for each in ranks]
    a_comparison_s = cpu_s(compare)
    far_s, near_s = cpu_s(lambda: together(told)), cpu_s(lambda: together(alone))
    share = a_comparison_s / COMPARED_EVERY_S + max(far_s, near_s) / SHOWN_EVERY_S
    print(
        "| ranks | one comparison | a table, 8 ranks here | all ranks here | share of a core | bytes a rank |"
    )
    print("|---|---|---|---|---|---|")
    cells = (f"{a_comparison_s * 1e3:.0f} ms", f"{far_s * 1e3:.1f} ms", f"{near_s * 1e3:.1f} ms")
    print(f"| {size} | {' | '.join(cells)} | {share:.1%} | {max(map(len, texts), default=0)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
