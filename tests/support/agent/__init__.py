"""What tests of the agent share."""


def fail(error: BaseException) -> None:
    """Where the agent would report an error of its own, a test fails."""
    raise error
