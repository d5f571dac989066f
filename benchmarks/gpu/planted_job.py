"""A CUDA job whose limit was built in, for the emulated device: what its kernels take there is planted.

`--scale` stretches all kernels; the host waits, computes or loads as its other arguments say.
"""

import argparse
import ctypes
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--scale", type=float, default=1.0)
parser.add_argument("--optimizer", choices=("loop", "foreach", "fused"), default="foreach")
parser.add_argument("--read-every", type=int, default=0, help="steps between two readings of the loss")
parser.add_argument("--host-us", type=float, default=0.0, help="Python of the loop's own, in each step")
parser.add_argument("--load-us", type=float, default=0.0, help="asleep over each batch of a loader")
parser.add_argument("--workers", type=int, default=0)
KINDS = ("plain", "scaler", "accumulate", "graph", "streams", "evaluate", "policy")
parser.add_argument("--kind", choices=KINDS, default="plain")
parser.add_argument("--layer", choices=("linear", "norm", "pointwise", "convolution"), default="linear")
parser.add_argument("--cast", action="store_true", help="autocast to bfloat16")
parser.add_argument("--pageable-mib", type=int, default=0, help="copied from pageable memory in each step")
parser.add_argument("--lag-us", type=float, default=0.0, help="two ranks, of which the other sleeps so long")
parser.add_argument("--seconds", type=float, default=120.0)
args = parser.parse_args()


class Slow(Dataset[Tensor]):
    """Batches that take their time."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(args.load_us / 1e6)
        return torch.ones(args.batch, args.width)


def batches() -> Iterator[Tensor]:
    sides = (args.batch, 8, args.width) if args.layer == "convolution" else (args.batch, args.width)
    data = torch.ones(sides, device="cuda")
    pageable = torch.ones(args.pageable_mib << 18)
    if not args.load_us:
        while True:
            if args.pageable_mib:
                pageable.cuda()
            yield data
    workers = {"multiprocessing_context": "spawn"} if args.workers else {}
    for batch in DataLoader(Slow(), batch_size=None, num_workers=args.workers, **workers):
        yield batch.cuda()


class Pointwise(nn.Module):
    """Moves each number three times and multiplies none with another."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, data: Tensor) -> Tensor:
        return torch.relu(data * self.scale) + 1.0


def layer() -> nn.Module:
    if args.layer == "linear":
        return nn.Linear(args.width, args.width)
    if args.layer == "convolution":
        return nn.Conv1d(8, 8, 3, padding=1)
    return nn.LayerNorm(args.width) if args.layer == "norm" else Pointwise()


def join_ranks(rank: int, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)}
    torch.distributed.init_process_group("gloo")


def lagging(port: int) -> None:
    """The other rank: late for each sum."""
    join_ranks(1, port)
    while True:
        time.sleep(args.lag_us / 1e6)
        torch.distributed.all_reduce(torch.ones(1))


def main() -> None:
    if args.lag_us:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        multiprocessing.get_context("spawn").Process(target=lagging, args=(port,), daemon=True).start()
        join_ranks(0, port)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = ctypes.CDLL(None)
    device.emu_scale.argtypes = [ctypes.c_double]
    device.emu_scale(args.scale)
    device.emu_ahead_us.restype = ctypes.c_double
    model = nn.Sequential(*[layer() for _ in range(args.layers)]).cuda()
    forms = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    form = {"capturable": True} if args.kind == "graph" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, **forms[args.optimizer], **form)
    scaler = torch.amp.GradScaler("cuda", enabled=args.kind == "scaler")

    def backward(data: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=args.cast):
            loss = model(data).square().mean()
        scaler.scale(loss).backward()
        return loss.detach()

    aside = torch.cuda.Stream()

    def act(data: Tensor) -> None:
        """A policy that decides, step by step, in a world that is computed on the host."""
        with torch.no_grad():
            for _ in range(8):
                choice = int(model(data)[0].argmax().item())
                sum(each * choice for each in range(2000))

    def step(data: Tensor, number: int) -> None:
        if args.kind == "policy":
            act(data)
        if args.kind == "evaluate" and number % 10 == 0:
            with torch.no_grad():
                for _ in range(3):
                    model(data)
        if args.kind == "streams":
            with torch.cuda.stream(aside):
                held = data * 2
            torch.cuda.current_stream().wait_stream(aside)
            data = data + held
        optimizer.zero_grad(set_to_none=args.kind != "graph")
        for _ in range(4 if args.kind == "accumulate" else 1):
            loss = backward(data)
        if args.lag_us:
            torch.distributed.all_reduce(torch.ones(1))
        scaler.step(optimizer)
        scaler.update()
        if args.read_every and number % args.read_every == 0:
            loss.item()

    graph = None
    source, end = batches(), time.perf_counter() + args.seconds
    for number, data in enumerate(source):
        if args.kind == "graph" and number == 5:
            graph, held = torch.cuda.CUDAGraph(), data.clone()
            with torch.cuda.graph(graph):
                step(held, number)
        if graph is None:
            step(data, number)
        else:
            graph.replay()
        if args.host_us:
            until = time.perf_counter() + args.host_us / 1e6
            while time.perf_counter() < until:
                pass
        if number == 20:
            print(f"trains, the host {device.emu_ahead_us(0) / 1e3:.1f} ms ahead", flush=True)
        if time.perf_counter() > end:
            return


if __name__ == "__main__":
    main()
