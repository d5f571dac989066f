"""What torch computes another way while a dispatch mode is on, and whether a job calls any of it.

ATen asks `isTensorSubclassLike` (`TensorSubclassLikeUtils.h`), which says yes to every tensor under a
mode. Most code that asks only avoids writing in place; what is named here gives other bits, as torch's own
samples of all operators (`op_db` of `common_methods_invocations`) show, computed with and without a mode.
In: some plain steps, logged. Out: which of it they call, and later what a traced step calls as the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter_ns
from types import ModuleType

from ..job_state.operator_log import OperatorLog
from ..live_torch.torch_types import Abstain

# Formulas in `FunctionsManual.cpp`, by the forward operators whose gradient they are.
_DERIVATIVES = {
    "ProdBackward0": "aten::prod",
    "ProdBackward1": "aten::prod",
    "MaskedFillBackward1": "aten::masked_fill",  # with a tensor as the value
    "MaxBackward1": "aten::max",  # of all elements; so are the next ones
    "MinBackward1": "aten::min",
    "MedianBackward0": "aten::median",
    "NanmedianBackward0": "aten::nanmedian",
}
# Operators of `BatchLinearAlgebra.cpp` that are composed of others, and what they call: without vectors, else
# with them.
_COMPOSED = {
    "aten::linalg_eigvalsh": "aten::_linalg_eigh",
    "aten::linalg_svdvals": "aten::_linalg_svd",  # cond, and the norms 2, -2 and nuc
    "aten::linalg_eigvals": "aten::linalg_eig",
    "aten::linalg_lstsq": "aten::linalg_lstsq",
}
_CONJUGATE = "aten::_conj"  # marks a tensor, and products honour the mark; under a mode it is written out
_FOLDED = "aten::matmul of a batch by a single matrix"  # one product of all rows, in place of one a sample
_SENSITIVE = frozenset((*_DERIVATIVES, *_COMPOSED, _CONJUGATE, _FOLDED))
_SHOWN = frozenset((*_DERIVATIVES.values(), "aten::masked_fill_", *_COMPOSED.values()))

FEWEST_STEPS = 2
MOST_STEPS = 16
MOST_TRIES = 40
LOG_NS = 200_000_000  # of training, for more than the fewest


class SensitiveCalls:
    """Learns in plain steps what the job calls, and says why none of its steps may run under a mode."""

    def __init__(self, torch: ModuleType) -> None:
        self._log = OperatorLog(torch)
        self._names: set[str] = set()
        self._steps = self._tries = self._logged_ns = 0
        self._began_ns = 0

    @property
    def on(self) -> bool:
        """A step is being logged: only its own thread can end that."""
        return self._log.on

    def begin_step(self) -> None:
        """Log the step that begins.

        Raises:
            Abstain: that can't be done.
        """
        self._tries += 1
        self._began_ns = perf_counter_ns()
        if not self._log.start() or self._tries > MOST_TRIES:
            self._log.stop()
            raise Abstain("which operators the job calls can't be learnt without changing how they run")

    def end_step(self) -> None:
        """The step has ended, or the log must."""
        logged = self._log.stop()
        if logged is not None:
            self._logged_ns += perf_counter_ns() - self._began_ns
            self._steps += logged.whole
            self._names |= logged.names
            if any(map(_is_folded, logged.products)):
                self._names.add(_FOLDED)

    def enough(self, *, long: bool) -> bool:
        """Enough steps have been seen; of long ones one will do."""
        if self._steps < (1 if long else FEWEST_STEPS):
            return False
        return self._steps >= MOST_STEPS or self._logged_ns > LOG_NS

    def unexpected(self, operators: Iterable[object]) -> set[str]:
        """Of the operators that a step has dispatched: those whose like no logged step has called."""
        names = {str(getattr(getattr(one, "_schema", None), "name", "")) for one in set(operators)}
        return (names & _SHOWN) - self._names

    def check(self, operators: Iterable[object] = ()) -> None:
        """Of the steps that were logged, and one that has dispatched these operators under the mode.

        Raises:
            Abstain: a mode would change what the job computes.
        """
        found = (self._names & _SENSITIVE) | self.unexpected(operators)
        if found:
            name = min(found)
            asks = f"the gradient of {_DERIVATIVES[name]}" if name in _DERIVATIVES else name
            raise Abstain(
                f"torch computes {asks} another way while operators are watched, so no step is traced"
            )


def _is_folded(shapes: tuple[tuple[int, ...], ...]) -> bool:
    """A batch of matrices by a batch of one."""
    return [len(shape) for shape in shapes[:2]] == [3, 3] and shapes[0][0] != 1 == shapes[1][0]
