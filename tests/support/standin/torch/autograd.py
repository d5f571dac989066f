"""Backward: burns a little time, so that a step has a duration."""


def backward(tensors, grad_tensors=None):
    sum(range(2000))


def _profiler_enabled():
    return False
