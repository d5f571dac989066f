"""With which of torch's implementations an optimizer has updated last, seen where torch calls it."""

import functools
import sys
from collections.abc import Callable

KINDS = {"_single_tensor_": "plain", "_multi_tensor_": "foreach", "_fused_": "fused"}


class Seen:
    """Watches the implementations of some classes of torch.optim from now on; `put` places the watches."""

    def __init__(self, *classes: type, put: Callable[[object, str, object], None] = setattr) -> None:
        self.last: str | None = None
        for cls in classes:
            function = cls.step  # type: ignore[attr-defined]
            while hasattr(function, "__wrapped__"):
                function = function.__wrapped__
            module = sys.modules[function.__module__]
            for name in list(vars(module)):
                kind = next((KINDS[start] for start in KINDS if name.startswith(start)), None)
                if kind is not None:
                    put(module, name, self._watched(kind, vars(module)[name]))

    def _watched(self, kind: str, implementation: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(implementation)
        def watched(*args: object, **kwargs: object) -> object:
            self.last = kind
            return implementation(*args, **kwargs)

        return watched
