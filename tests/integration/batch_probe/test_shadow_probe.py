"""The shadow probe on training loops of many kinds: harmless to the bit, right or silent."""

from __future__ import annotations

import pytest

from support.batch_probe.shadow import ACCEPTED
from support.batch_probe.shadow_loop import train
from support.batch_probe.shadow_refused import REFUSED

pytestmark = pytest.mark.integration

STEPS = 48


@pytest.mark.parametrize("name", ACCEPTED)
def test_training_is_bitwise_the_same_and_the_batch_is_found(name: str) -> None:
    make, batch = ACCEPTED[name]
    never, control = (train(make, STEPS, probe=False) for _ in range(2))
    assert never.fingerprint == control.fingerprint, "the job itself is not repeatable"

    probed = train(make, STEPS, probe=True)

    assert probed.fingerprint == never.fingerprint
    assert probed.shown == never.shown
    assert probed.probed is not None, probed.activities
    assert probed.probed["status"] == "ok", probed.probed["why"]
    assert probed.probed["batch"] == batch
    points = probed.probed["points"]
    assert [point["batch"] for point in points] == [batch // 4, batch // 2, batch, 2 * batch]
    assert all(len(point["shadow_ns"]) >= 2 and min(point["shadow_ns"]) > 0 for point in points)
    assert probed.probed["operations"] > 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_probed_is_refused_with_the_reason_and_left_as_it_was(name: str) -> None:
    make, reason = REFUSED[name]
    never = train(make, STEPS, probe=False)

    probed = train(make, STEPS, probe=True)

    assert probed.fingerprint == never.fingerprint
    assert probed.shown == never.shown
    assert probed.probed is not None
    assert probed.probed["status"] == "abstained"
    assert reason in str(probed.probed["why"])
    assert probed.probed.get("points", []) == []
