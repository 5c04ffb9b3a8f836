"""The memory store and the contract (C3, C4, C5, C7, H14)."""

import pytest

from dueline.store_tests.laws import KeepingFactory, Laws, StoreFactory
from dueline.stores.memory.store import MemoryStore
from tests.harness.store_comparison import ModelLaws


@pytest.mark.memory
class TestMemory(Laws, ModelLaws):
    runs = 10  # it is compared with itself: what can fail is the machine

    @pytest.fixture
    def factory(self) -> StoreFactory:
        return KeepingFactory(MemoryStore)
