"""The SQLite store and the contract (C1, C3, C4, C5, C7, C20, T2, T11, T12, H5, H14, R1)."""

from pathlib import Path

import pytest

from dueline.store_tests.laws import SharedLaws, StoreFactory, UrlFactory
from tests.harness.store_comparison import ModelLaws


@pytest.mark.sqlite
class TestSqlite(SharedLaws, ModelLaws):
    @pytest.fixture
    def factory(self, tmp_path: Path) -> StoreFactory:
        return UrlFactory(lambda number: f"sqlite:///{tmp_path}/{number}.db?synchronous=NORMAL")
