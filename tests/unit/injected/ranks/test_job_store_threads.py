"""The job's store where no thread is to be had."""

import pytest

from autobrrr.injected.ranks import job_store
from autobrrr.injected.ranks.shared_log import RegisterLost


class Store:
    def check(self, keys: list[str]) -> bool:
        return False


def test_no_thread_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    store = job_store.JobStore(Store)  # type: ignore[arg-type]
    assert store.get("a") is None
    monkeypatch.setattr(job_store._thread, "start_new_thread", none_left)
    with pytest.raises(RegisterLost, match="can't start"):
        store.get("a")
    store.leave()
    assert not store._under_way
