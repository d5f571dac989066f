"""The base of optimizers with the global step hooks, as torch has them."""

import functools
from collections import OrderedDict

_global_optimizer_pre_hooks = OrderedDict()
_global_optimizer_post_hooks = OrderedDict()


class RemovableHandle:
    """Takes one hook out of its registry."""

    next_id = 0

    def __init__(self, hooks):
        self.hooks, self.id = hooks, RemovableHandle.next_id
        RemovableHandle.next_id += 1

    def remove(self):
        self.hooks.pop(self.id, None)


def _register(hooks, hook):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def register_optimizer_step_pre_hook(hook):
    return _register(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    return _register(_global_optimizer_post_hooks, hook)


class Optimizer:
    """Calls the global hooks around every step."""

    def __init__(self, params, lr=0.1):
        self.param_groups = [{"params": list(params), "lr": lr}]
        self.state = {}
        cls = type(self)
        if not getattr(cls.step, "hooked", None):
            cls.step = self.profile_hook_step(cls.step)

    @staticmethod
    def profile_hook_step(step):
        @functools.wraps(step)
        def wrapper(self, *args, **kwargs):
            for hook in list(_global_optimizer_pre_hooks.values()):
                hook(self, args, kwargs)
            out = step(self, *args, **kwargs)
            self._optimizer_step_code()
            for hook in list(_global_optimizer_post_hooks.values()):
                hook(self, args, kwargs)
            return out

        wrapper.hooked = True
        return wrapper

    def _optimizer_step_code(self):
        """Empty; called after every step, as in torch."""

    def step(self, closure=None):
        loss = closure() if closure is not None else None
        self._update()
        return loss

    def zero_grad(self, set_to_none=True):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
