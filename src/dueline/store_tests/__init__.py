"""The laws that every store passes.

A store's test file is one class (`laws.Laws`, or `laws.SharedLaws` for a store that several
processes may open; `SteppedLaws` and `SharedSteppedLaws` where `together` is no transaction) and
one fixture that makes empty stores:

    class TestSqlite(SharedLaws):
        @pytest.fixture
        def factory(self, tmp_path: Path) -> StoreFactory:
            return UrlFactory(lambda number: f"sqlite:///{tmp_path}/{number}.db")

Names are imported from `dueline.store_tests.laws`; pytest and hypothesis come with
`dueline[contract]`.
"""
