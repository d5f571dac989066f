"""Jobs that took no part in building the signals, five at a time; tried last, reported as they came out."""

from __future__ import annotations

from benchmarks.planted.case import Case, Truth


def held_out(name: str, job: str, truth: Truth, why: str) -> Case:
    return Case(name=name, job=job, truth=truth, why=why, package="benchmarks.planted.held_out")


HELD_OUT: tuple[Case, ...] = (
    held_out("tokeniser-in-collate", "tokeniser", "input", "regular expressions split 16 long texts a batch"),
    held_out(
        "second-derivatives",
        "second_derivatives",
        "overhead",
        "a tiny net, differentiated twice on 16 points",
    ),
    held_out(
        "message-passing", "message_passing", "memory", "gathers and scatters 60,000 edges of 32 numbers each"
    ),
    held_out("all-pairs-loss", "all_pairs", "compute", "1,024 x 1,024 similarities of two wide towers"),
    held_out("edit-distance", "edit_distance", "host", "Levenshtein distances in Python after each step"),
    held_out("maze-rollouts", "rollouts", "host", "24 walks through a maze in plain Python for each update"),
    held_out("compressed-items", "compressed", "input", "16 rows of 128 KiB a batch, unpacked by zlib"),
    held_out(
        "unrolled-cell", "unrolled", "overhead", "a recurrent cell of width 24, called 20 times by Python"
    ),
    held_out("waveforms", "waveforms", "compute", "convolutions of 128 x 128 channels, 9 wide"),
    held_out(
        "averaged-weights", "averaged", "memory", "36 MiB of weights read and written 11 times for one sample"
    ),
)
