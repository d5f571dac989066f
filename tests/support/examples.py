"""How many examples each property is tried with: `AUTOBRRR_TEST_EXAMPLES`, few by day and many at night."""

import os

from hypothesis import settings

EXAMPLES = int(os.environ.get("AUTOBRRR_TEST_EXAMPLES", "25"))
settings.register_profile(
    "house", deadline=None, max_examples=EXAMPLES
)  # how long one takes is the machine's affair


def load() -> None:
    settings.load_profile("house")
