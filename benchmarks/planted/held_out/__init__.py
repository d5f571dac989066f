"""Five jobs that took no part in building the signals; tried last, reported as they came out."""

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
)
