"""Proofs, made up."""

import msgspec

from autobrrr.prove.parting import sameness
from autobrrr.prove.work_rules import work_done
from autobrrr.records.proof_records import Proof, ProofSpeed, ProofWork, RefusedWork, WorkRefusal
from support.accounts import account


def proof(**fields: object) -> Proof:
    """A proof of a change that is faster and bitwise the same."""
    done = work_done(account(), 16)
    usual = Proof(
        verdict="proven",
        reason="1.56x [1.52–1.60] the useful work a second",
        refusals=[],
        speed=ProofSpeed(
            ratio=1.56,
            interval=[1.52, 1.60],
            whole_ratio=1.55,
            noise=0.012,
            starts=3,
            pairs=60,
            clock="host",
            step_ns=[3e6, 2e6],
        ),
        slower=None,
        sameness=sameness(account(), account(), account()),
        work=ProofWork(before=done, after=done),
        gate=None,
        needed_ns=None,
        before="python train.py",
        after="python fast.py",
        elapsed_ns=40_000_000_000,
    )
    return msgspec.structs.replace(usual, **fields)


def refused(why: str = "it evaluates on 0 samples, before on 1024") -> Proof:
    """One that was refused."""
    found = RefusedWork(code=WorkRefusal.LESS_EVALUATION, why=why)
    return proof(verdict="refused", reason=why, refusals=[found], speed=None)
