"""The trainings of `kinds.py` that learn classes, as gloo ranks under DistributedDataParallel.

torchrun --nproc-per-node 4 ddp_kinds.py norms --seconds 3
"""

import time

import kinds
import pace
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CLASSES = ("adagrad", "bilstm", "conv", "gru", "nadam", "norms", "residual", "rmsprop", "sgd", "tables")
TIMED_STEPS = 20


def on_all_ranks(classified):
    """The same step with the model of all ranks, each on data of its own."""

    def made(model, *args, **options):
        model = DistributedDataParallel(model)
        torch.manual_seed(1 + dist.get_rank())
        return classified(model, *args, **options)

    return made


def agreed_steps(train, seconds):
    """So many take this time; ranks that stop by their own clocks would wait for each other."""
    for _ in range(pace.WARM_STEPS):
        train()
    began = time.perf_counter()
    for _ in range(TIMED_STEPS):
        train()
    step_s = torch.tensor((time.perf_counter() - began) / TIMED_STEPS)
    dist.all_reduce(step_s, dist.ReduceOp.MAX)
    return int(seconds / step_s) + 2 * pace.WARM_STEPS


if __name__ == "__main__":
    args = pace.arguments(CLASSES)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    kinds.classified = on_all_ranks(kinds.classified)
    train = kinds.KINDS[args.kind]()
    args.steps = args.steps or agreed_steps(train, args.seconds)
    for _ in pace.steps(args):
        train()
    dist.destroy_process_group()
