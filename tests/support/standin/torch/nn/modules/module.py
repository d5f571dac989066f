"""The base of modules, with torch's global forward hooks."""

from collections import OrderedDict

_global_forward_pre_hooks = OrderedDict()
_global_forward_hooks = OrderedDict()


class Module:
    """Calls `forward` between the hooks."""

    training = True

    def __call__(self, *args, **kwargs):
        for hook in list(_global_forward_pre_hooks.values()):
            hook(self, args)
        out = self.forward(*args, **kwargs)
        for hook in list(_global_forward_hooks.values()):
            hook(self, args, out)
        return out

    def parameters(self):
        return iter(getattr(self, "_own_parameters", ()))
