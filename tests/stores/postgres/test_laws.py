"""The PostgreSQL store and the contract, on a real server (C1, C3, C4, C5, C7, H14, R1)."""

from collections.abc import Iterator

import pytest

from dueline.store_tests.laws import SharedLaws, StoreFactory
from tests.harness.postgres import Schemas, schemas
from tests.harness.store_comparison import ModelLaws


@pytest.fixture(scope="class")
def made() -> Iterator[Schemas]:
    with schemas() as made:
        yield made


@pytest.mark.postgres
@pytest.mark.timeout(600)
class TestPostgres(SharedLaws, ModelLaws):
    runs = 8  # each call is a round trip

    @pytest.fixture
    def factory(self, made: Schemas) -> StoreFactory:
        return made
