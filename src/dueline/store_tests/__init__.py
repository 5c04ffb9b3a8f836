"""The laws that every store passes.

The tests of a store are one class and one fixture that opens empty stores. The class is
`laws.Laws`, or `laws.SharedLaws` for a store that several processes may open. If `together` is not
a transaction, it is `SteppedLaws` or `SharedSteppedLaws`:

    class TestSqlite(SharedLaws):
        @pytest.fixture
        def factory(self, tmp_path: Path) -> StoreFactory:
            return UrlFactory(lambda number: f"sqlite:///{tmp_path}/{number}.db")

Names are imported from `dueline.store_tests.laws`; pytest comes with `dueline[contract]`.
"""
