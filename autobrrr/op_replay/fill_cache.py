"""Compiles the graphs of a job into torch's cache, in a process beside it: runs in the job's own Python.

In: what `agent.remedies.compile.cache_graphs` has pickled. Out: as JSON, why the cache lacks any. Graphs must
come to the very key under which the job will ask for them, so what decides it is set as it is there.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import ModuleType
from typing import Any

PART = ".part"
PYTHON_CODE = ("_code", "_lineno_map", "_prologue_start")  # of a graph: made anew, in the order of the job


def compiled(torch: ModuleType, given: Mapping[str, Any]) -> str | None:
    """Compile all graphs; returns why the cache does not have them all."""
    import torch._functorch.aot_autograd as autograd
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.cpp_builder import CppBuilder

    functorch.load_config(given["functorch"])
    inductor.load_config(given["inductor"])
    inductor.compile_threads = 1  # in no other process
    CppBuilder.build = _whole(CppBuilder.build)
    torch.set_num_threads(given["threads"])
    if given["precision"] != torch.get_float32_matmul_precision():  # to set what holds changes the key
        torch.set_float32_matmul_precision(given["precision"])
    torch.use_deterministic_algorithms(given["deterministic"])
    torch.set_default_dtype(getattr(torch, given["dtype"]))
    whole = autograd.AOTConfig
    for pickled in given["graphs"]:
        told = pickle.loads(pickled)
        graph, fakes, mode = _graph(torch, told)
        # Fake inputs look dynamic to torch; the job's are real, and fixed where dynamo found them so.
        autograd.AOTConfig = lambda dynamic=told["dynamic"], **fields: whole(
            **{**fields, "dynamic_shapes": dynamic}
        )
        dtype = told["autocast"]
        cast = torch.autocast("cpu", dtype) if dtype is not None else nullcontext()
        with cast, torch._guards.tracing(torch._guards.TracingContext(mode)):
            compile_fx(graph, fakes, config_patches=given["options"])
    told = torch._dynamo.utils.counters["aot_autograd"]
    kept = told["autograd_cache_saved"] + told["autograd_cache_hit"]
    return None if kept == len(given["graphs"]) else "torch's cache does not take all of its graphs"


def _whole(build: Callable[[Any], None]) -> Callable[[Any], None]:
    """Files get their names once they are whole: the job takes what is there, and this may be killed."""

    def built(builder: Any) -> None:
        target, output = builder.get_target_file_path(), builder._output
        builder._output = output + PART
        try:
            build(builder)
            os.replace(target + PART, target)
        finally:
            builder._output = output

    return built


def _graph(torch: ModuleType, told: Mapping[str, Any]) -> tuple[Any, list[Any], Any]:
    """A graph as dynamo made it, its fake inputs and their mode."""
    from torch._subclasses import FakeTensorMode
    from torch.fx._graph_pickler import GraphPickler
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    graph, fakes = GraphPickler.loads(told["graph"], mode)
    type(graph).__name__ = "GraphModule"
    for name in PYTHON_CODE:
        vars(graph).pop(name, None)
    graph._backend_id = None
    graph._param_name_to_source = told["names"]
    places = graph.graph.find_nodes(op="placeholder")
    for place, source, static in zip(places, told["sources"], told["static"], strict=True):
        place._dynamo_source = source
        place.meta["tensor_dict"] = {} if static is None else {"_dynamo_static_input_type": static}
    return graph, fakes, mode


def main() -> None:
    """Read the graphs from standard input, with where the job finds torch and a compiler."""
    given = pickle.load(sys.stdin.buffer)
    os.environ.update(given["variables"])  # torch reads some as it is imported
    sys.path += given["paths"]
    import torch

    json.dump(compiled(torch, given), sys.stdout)
