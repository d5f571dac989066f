"""The remedies that are on in the target: switched through the agent, kept by token.

Belongs to the event loop's thread. Every call ends in exactly one call of its `on_done`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from autobrrr.agent.remedies.registry import RefusalCode
from autobrrr.records import from_registry
from autobrrr.records.record_base import as_record
from autobrrr.records.wire_answers import ActiveRemedy, RemedyOutcome
from autobrrr.sidecar.sockets.socket_frames import LINK_LOST, AgentLink, Heard, said

OnSwitched = Callable[[RemedyOutcome], None]


class RemedySwitch:
    """All remedies of one session; none before its agent is in.

    Args:
        refusal: Why a command of this name can't be given now; None where it can.
        changed: Is told in a sentence what is on or off now: what was measured before no longer counts.
    """

    def __init__(self, refusal: Callable[[str], str | None], changed: Callable[[str], None]) -> None:
        self._refusal, self._changed = refusal, changed
        self.agent: AgentLink | None = None
        self.on: dict[int, ActiveRemedy] = {}
        self.lost: dict[int, str] = {}  # taken off by the target's side: token -> why

    @property
    def names(self) -> list[str]:
        return [applied.remedy for applied in self.on.values()]

    def found(self, active: object) -> None:
        """Take over what the agent says is on: of a recipe, or since another rank has switched all ranks."""
        self.on = {}
        for applied in active if isinstance(active, list) else []:
            if isinstance(applied, dict):
                with contextlib.suppress(msgspec.ValidationError):
                    one = as_record({**applied, "planned": applied.get("planned") is not False}, ActiveRemedy)
                    self.on[one.token] = one

    def apply(
        self,
        remedy: str,
        options: Mapping[str, object],
        on_done: OnSwitched,
        allowed: Sequence[str] | None = None,
        *,
        prepare: bool = False,
    ) -> None:
        """Switch one on at the next boundary, unless its class on this job is none of those allowed.

        Args:
            prepare: It only shows what it would compile, until it is undone; see `Session.take_graphs`.
        """

        def is_on(done: RemedyOutcome) -> str:
            if done.token is not None:
                known = msgspec.structs.asdict(from_registry(remedy, options))
                self.on[done.token] = ActiveRemedy(**known, token=done.token)
            return f"{remedy} shows what it would compile" if prepare else f"{remedy} is on"

        asked = {"remedy": remedy, "options": dict(options), "allowed": allowed, "prepare": prepare}
        self._order("apply", on_done, is_on, **asked)

    def undo(self, token: int, on_done: OnSwitched) -> None:
        """Switch one off at the next boundary."""

        def is_off(done: RemedyOutcome) -> str:
            applied = self.on.pop(token, None)
            return f"{applied.remedy if applied else token} is off"

        self._order("undo", on_done, is_off, token=token)

    def together(self, log: str, on_done: OnSwitched) -> None:
        """From now on switch them on all ranks of the job at one step, or on none.

        Args:
            log: Where another rank has put what the ranks share; "": this one begins.
        """
        self._order("together", on_done, lambda done: None, log=log)

    def _order(
        self, do: str, on_done: OnSwitched, changed: Callable[[RemedyOutcome], str | None], **fields: object
    ) -> None:
        def replied(reply: Heard) -> None:
            done = _outcome(reply, remedy)
            text = changed(done) if done.why is None else None
            if text is not None:
                self._changed(text)
            on_done(done)

        remedy = str(fields.get("remedy", ""))
        refusal = self._refusal(do)
        if refusal is None and self.agent is not None:
            self.agent.command(do, replied, **fields)
        else:
            lost = RefusalCode.LINK_LOST if do == "undo" else None
            on_done(RemedyOutcome(remedy=remedy, why=refusal or LINK_LOST, code=lost))

    def only(self, remedies: Sequence[str]) -> None:
        """The rest has gone with the agent: on are these, which could not be reverted, and the recipe's."""
        self.on = {
            token: applied
            for token, applied in self.on.items()
            if applied.planned or applied.remedy in remedies
        }

    def lose(self, event: Heard) -> str | None:
        """The agent says that one is off, or can't be taken off; returns a sentence about it."""
        token, why = event.get("token"), said(event, "why")
        if not isinstance(token, int):
            return None
        applied = self.on.pop(token, None)
        self.lost[token] = why
        return f"{applied.remedy if applied else said(event, 'remedy', str(token))} was lost: {why}"


def _outcome(reply: Heard, remedy: str) -> RemedyOutcome:
    if reply.get("ok") is not True:
        why = said(reply, "why", "refused without a reason")
        return RemedyOutcome(remedy=remedy, why=why, code=code_of(reply))
    return as_record({**reply, "remedy": remedy}, RemedyOutcome)


def code_of(reply: Heard) -> RefusalCode:
    """The code of a refusal; one that is not known counts as one that stays."""
    try:
        return RefusalCode(reply.get("code"))
    except ValueError:
        return RefusalCode.UNFIT
