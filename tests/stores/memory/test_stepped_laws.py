"""The memory store without transactions and the contract (R13)."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from dueline.api.connect import open_store
from dueline.core.clock import Clock, SystemClock
from dueline.core.job import Job
from dueline.core.store import Drop, Store
from dueline.store_tests.calls import claim, lane_of, new_jobs, put_in, rows_in
from dueline.store_tests.exclusion import at_once
from dueline.store_tests.laws import SteppedLaws, StoreFactory
from tests.harness.cluster import Cluster
from tests.harness.late_answers import LateClient
from tests.harness.remembering_store import watched
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.store_comparison import ModelLaws


class ClusterFactory:
    """Makes clusters; each opening is another client, with a memory of its own."""

    def __init__(self, make: Callable[[Clock, Cluster], Store]) -> None:
        """Take what makes a client of a cluster."""
        self._make = make
        self._clusters: dict[str, Cluster] = {}

    def fresh(self) -> str:
        """Make an empty cluster; return its name."""
        url = f"cluster://{len(self._clusters)}"
        self._clusters[url] = Cluster()
        return url

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        """Make a client."""
        return self._make(clock or SystemClock(), self._clusters[url])


@pytest.mark.memory
class TestMemoryWithoutTransactions(SteppedLaws, ModelLaws):
    runs = 15  # each of its steps is Python: one life takes a second under coverage

    @pytest.fixture(params=[True, False], ids=["remembering", "forgetful"])
    def factory(self, request: pytest.FixtureRequest) -> StoreFactory:
        remember: bool = request.param
        return ClusterFactory(
            lambda clock, cluster: SteppedMemoryStore(clock, cluster=cluster, remember=remember)
        )

    @pytest.fixture(autouse=True)
    def watching(self, request: pytest.FixtureRequest) -> Iterator[None]:
        with watched(request.node.originalname):
            yield


@pytest.mark.memory
class TestMemoryWhoseRequestsLandLate(TestMemoryWithoutTransactions):
    runs = 5

    @pytest.fixture
    def factory(self) -> StoreFactory:
        return ClusterFactory(lambda clock, cluster: LateClient(clock, cluster=cluster))

    def test_of_many_threads_that_finish_a_claim_one_succeeds(self, store: Store) -> None:
        """Or several, each of which gave a request up before the row was missing (rule U5)."""

        def dropped(job: Job, _thread: int) -> bool:
            return store.settle([Drop(job)])[0]

        put_in(store, *new_jobs(20))
        for job in claim(store, lane_of()).jobs:
            assert any(at_once(partial(dropped, job)))
        assert rows_in(store, lane_of()) == []


@pytest.mark.memory
def test_an_address_names_it() -> None:
    store = open_store("memory://?transactional=off")
    assert (store.transactional, store.scope) == (False, "process")
    assert store.describe()["durability"] == "none: gone with the process"
