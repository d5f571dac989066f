"""A CUDA job whose limit was built in, for the emulated device: what its kernels take there is planted.

`--scale` stretches all kernels; the host waits, computes or loads as its other arguments say.
"""

from __future__ import annotations

import argparse
import ctypes
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
parser.add_argument("--read", choices=("never", "step", "layer", "parameter"), default="never")
parser.add_argument("--read-every", type=int, default=1, help="steps between two readings of the loss")
parser.add_argument("--host-us", type=float, default=0.0, help="Python of the loop's own, in each step")
parser.add_argument("--load-us", type=float, default=0.0, help="asleep over each batch of a loader")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--kind", choices=("plain", "scaler", "accumulate", "compile", "graph"), default="plain")
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
    data = torch.ones(args.batch, args.width, device="cuda")
    if not args.load_us:
        while True:
            yield data
    workers = {"multiprocessing_context": "spawn"} if args.workers else {}
    for batch in DataLoader(Slow(), batch_size=None, num_workers=args.workers, **workers):
        yield batch.cuda()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = ctypes.CDLL(None)
    device.emu_scale.argtypes = [ctypes.c_double]
    device.emu_scale(args.scale)
    layers = [nn.Linear(args.width, args.width) for _ in range(args.layers)]
    model = nn.Sequential(*layers).cuda()
    forward = torch.compile(model) if args.kind == "compile" else model
    forms = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    form = {"capturable": True} if args.kind == "graph" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, **forms[args.optimizer], **form)
    scaler = torch.amp.GradScaler("cuda", enabled=args.kind == "scaler")

    def backward(data: Tensor) -> Tensor:
        if args.read == "layer":
            for layer in layers:
                data = layer(data)
                data.sum().item()
            loss = data.square().mean()
        else:
            loss = forward(data).square().mean()
        scaler.scale(loss).backward()
        return loss.detach()

    def step(data: Tensor, number: int) -> None:
        optimizer.zero_grad(set_to_none=args.kind != "graph")
        for _ in range(4 if args.kind == "accumulate" else 1):
            loss = backward(data)
        if args.read == "parameter":
            for parameter in model.parameters():
                parameter.grad.norm().item()
        scaler.step(optimizer)
        scaler.update()
        if args.read == "step" and number % args.read_every == 0:
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
            print("trains", flush=True)
        if time.perf_counter() > end:
            return


if __name__ == "__main__":
    main()
