"""No device: what the agent asks of one."""


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def is_current_stream_capturing() -> bool:
    return False
