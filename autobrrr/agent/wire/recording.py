"""What the agent and the replay of a recorded step both know of a recording."""

from __future__ import annotations

# Ranges of the recorder: what they touch was the job's own.
WEIGHTS, STATE = "autobrrr weights", "autobrrr state"
COLLATING = "autobrrr collate"  # a range in which items become a batch: it may take as long for any number
# What began in a step, in order: its name, nanoseconds, those of a kernel, its phase, and when it began.
Times = list[tuple[str, int, int, str, int]]
