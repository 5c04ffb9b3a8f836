"""The Redis store and the contract, on real servers (C1, C3, C4, C5, C7, H14, R1)."""

import pytest

from dueline.store_tests.laws import SharedLaws, StoreFactory
from tests.harness.redis import prefixes
from tests.harness.store_comparison import ModelLaws


@pytest.mark.redis
@pytest.mark.timeout(600)
class TestRedis(SharedLaws, ModelLaws):
    runs = 8  # each call is a round trip
    kind = "redis"

    @pytest.fixture
    def factory(self) -> StoreFactory:
        return prefixes(self.kind)


@pytest.mark.long
class TestValkey(TestRedis):
    kind = "valkey"


class TestCluster(TestRedis):
    kind = "redis-cluster"


@pytest.mark.long
class TestValkeyCluster(TestRedis):
    kind = "valkey-cluster"
