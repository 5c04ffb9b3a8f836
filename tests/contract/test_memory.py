"""The memory store and the contract."""

import pytest

from dueline.contract.laws import KeepingFactory, Laws, StoreFactory
from dueline.stores.memory import MemoryStore


@pytest.mark.memory
class TestMemory(Laws):
    lives = 10  # it is compared with itself: what can fail is the machine

    @pytest.fixture
    def factory(self) -> StoreFactory:
        return KeepingFactory(MemoryStore)
