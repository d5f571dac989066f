"""The graphs of a model for torch's compile cache, which another process fills beside the job.

Dynamo reads the model's code as for any `torch.compile`. Here the graphs run eagerly and are pickled, with
all that torch's key to its cache depends on. The job compiles them once the cache has them.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ...job_facts import package_folders
from ...live_torch.compiled_code import forget_graphs
from ...live_torch.job_signals import Ours
from ...live_torch.module_call_slot import Call
from ..registry import RefusalCode, Refused

VARIABLES = ("CC", "CXX", "HOME", "LOGNAME", "PATH", "TMPDIR", "USER")  # where a compiler is, and puts things


class CacheGraphs:
    """A backend of `torch.compile`.

    Args:
        options: Of inductor, as the remedy gives them.

    Attributes:
        entries: What is compiled with it, by class: no functions of the remedy's, for which dynamo would
            count these versions too.

    Raises:
        Refused: this torch can't copy graphs, or keeps no compiled code.
    """

    def __init__(self, torch: ModuleType, options: Mapping[str, object]) -> None:
        import torch._functorch.config as functorch
        import torch._inductor.config as inductor

        keeps = getattr(functorch, "enable_autograd_cache", False) and not inductor.force_disable_caches
        if not keeps or find_spec("torch.fx._graph_pickler") is None:
            raise Refused("this torch keeps no compiled code on disk", RefusalCode.NOT_BESIDE)
        self._torch, self._options = torch, dict(options)
        self._configs = {"functorch": functorch, "inductor": inductor}
        self.entries: dict[type, Call] = {}
        self._called = 0
        self._graphs: list[bytes] = []
        self._state: dict[str, object] = {}  # read at the first graph, while the remedy's settings hold
        self._failures: list[str] = []

    def __call__(self, graph: Any, inputs: Sequence[object]) -> Any:
        self._called += 1
        with Ours(Exception, told=self._failed):
            self._state = self._state or self._found()
            self._graphs.append(pickle.dumps(_told(self._torch, graph, inputs)))
        return graph.forward

    def _found(self) -> dict[str, object]:
        """What holds for all graphs: nothing that needs torch to be read."""
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        torch = self._torch
        variables = {name: os.environ[name] for name in os.environ if name in VARIABLES or "TORCH" in name}
        return {
            **{name: config.save_config() for name, config in self._configs.items()},
            "variables": {**variables, "TORCHINDUCTOR_CACHE_DIR": cache_dir()},
            "paths": package_folders(torch),
            "threads": torch.get_num_threads(),
            "precision": torch.get_float32_matmul_precision(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        }

    def _failed(self, error: Exception) -> None:
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        self._failures.append(f"a graph of the model can't be copied: {said}"[:200])

    def end(self) -> None:
        """Nothing runs these graphs any more; torch keeps this backend, and counts what it has compiled."""
        self.entries.clear()
        forget_graphs(self._called)

    def sent(self) -> tuple[dict[str, object], int | None]:
        """The event, and an open file with the graphs, which the sender closes."""
        if self._failures or not self._graphs:
            return {"event": "graphs", "why": (*self._failures, "the model was not called")[0]}, None
        told = {**self._state, "options": self._options, "graphs": self._graphs}
        self._graphs = []
        fd = os.memfd_create("autobrrr-graphs", os.MFD_CLOEXEC)
        with open(fd, "wb", closefd=False) as file:
            pickle.dump(told, file)
        return {"event": "graphs", "fd": True}, fd


def _told(torch: ModuleType, graph: Any, inputs: Sequence[object]) -> dict[str, object]:
    """One graph, and what dynamo hangs on its nodes: pickling leaves that out, and the key needs it."""
    from torch._subclasses import FakeTensor
    from torch.fx._graph_pickler import GraphPickler, Options

    def apart(each: Any) -> Any:  # a gradient, a history and what it is a view of can't be pickled
        return each.detach().requires_grad_(each.requires_grad)

    places = graph.graph.find_nodes(op="placeholder")
    metas = [node.meta for node in graph.graph.nodes if "example_value" in node.meta]
    mode = next(each.fake_mode for meta in metas if isinstance(each := meta["example_value"], FakeTensor))
    with mode, torch.no_grad():
        for meta in metas:
            meta["example_value"] = torch.utils._pytree.tree_map_only(
                torch.Tensor, apart, meta["example_value"]
            )
    fakes = [place.meta["example_value"] for place in places]
    options = Options(ops_filter=None, node_metadata_key_filter="example_value".__eq__)
    return {
        "graph": GraphPickler.dumps((graph, fakes), options),
        "sources": [place._dynamo_source for place in places],
        "names": graph._param_name_to_source,
        "static": [place.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") for place in places],
        "dynamic": any(isinstance(each, FakeTensor) for each in inputs),
        "autocast": torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
    }
