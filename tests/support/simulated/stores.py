"""A store of torch's, as far as it is used."""

from __future__ import annotations


class KeptInMemory:
    """All in this process."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.checked = 0  # keys

    def check(self, keys: list[str]) -> bool:
        self.checked += len(keys)
        return all(key in self.kept for key in keys)

    def get(self, key: str) -> bytes:
        return self.kept[key]

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        if self.kept.get(key, b"") == expected_value.encode():
            self.kept[key] = desired_value.encode()
        return self.kept.get(key, expected_value.encode())

    def delete_key(self, key: str) -> bool:
        return self.kept.pop(key, None) is not None
