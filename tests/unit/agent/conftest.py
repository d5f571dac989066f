"""What every unit test of the agent gets."""

from collections.abc import Iterator

import pytest

from autobrrr.agent.live_torch.loader_epochs import EPOCHS
from autobrrr.agent.live_torch.patches import take_off_all


@pytest.fixture(autouse=True)
def nobody_listens_afterwards() -> Iterator[None]:
    """A recipe that is never through goes on listening to loaders, even to a stand-in's."""
    yield
    EPOCHS._listeners = []
    take_off_all(EPOCHS._patches)
