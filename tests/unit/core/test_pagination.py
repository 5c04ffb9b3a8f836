"""Reading one record among others."""

from pathlib import Path

import pytest

from dueline.core.pagination import record_at
from dueline.core.store import Put
from tests.harness.world import EVERY_KIND, world_on

KEYS = ("a", "a~", "a~z", "a\x7fz", "aé", "b", "b!", "c\ue000", "é")


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_record_is_found_by_its_key_whatever_lies_beside_it(kind: str, tmp_path: Path) -> None:
    store = world_on(kind, tmp_path).store
    store.commit("p", [Put(key, b"1", key.encode()) for key in KEYS])
    for key in KEYS:
        found = record_at(store, "p", key)
        assert found is not None
        assert found.value == key.encode()
    for key in ("", "\0", "a\0", "a!", "aa", "bé", "c", "\ue000", "zz"):
        assert record_at(store, "p", key) is None
    store.close()
