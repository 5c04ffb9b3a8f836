"""The SQLite store and the contract."""

from pathlib import Path

import pytest

from dueline.store_tests.laws import SharedLaws, StoreFactory, UrlFactory
from tests.harness.store_comparison import ModelLaws


@pytest.mark.sqlite
class TestSqlite(SharedLaws, ModelLaws):
    @pytest.fixture
    def factory(self, tmp_path: Path) -> StoreFactory:
        return UrlFactory(lambda number: f"sqlite:///{tmp_path}/{number}.db?synchronous=NORMAL")
