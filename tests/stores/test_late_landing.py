"""Requests that land late, on the memory store without transactions (rule U5)."""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import pytest

from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.readback import WriteStatus
from dueline.core.store import NO_VERSION, Put, Write
from dueline.store_tests.calls import token_of
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster, GivenUp, Node
from tests.harness.late_answers import ON_TIME, LateClient
from tests.harness.late_landing import Late, LateLandingLaws, Silence


class LateStore(LateClient):
    """A store that gives up its next conditional write on request."""

    def __init__(self) -> None:
        """Start empty, with an answer to each request."""
        self.armed: list[int] = []
        super().__init__(HandClock(), cluster=Cluster(), turns=self._turns())

    def _turns(self) -> Iterator[int]:
        while True:
            yield self.armed.pop() if self.armed else ON_TIME

    def silence(self) -> Callable[[], None]:
        """Answer no reading of rows, until what is returned is called."""

        def fail(*_: object) -> None:
            raise StoreUnavailable

        read_rows = self._node.some
        self._node.some = fail  # type: ignore[method-assign, assignment]

        def speak() -> None:
            self._node.some = read_rows  # type: ignore[method-assign]

        return speak


pytestmark = pytest.mark.memory


@pytest.fixture
def store() -> LateStore:
    return LateStore()


class TestMemory(LateLandingLaws):
    @pytest.fixture(params=range(5), ids=lambda skips: f"after {skips} steps")
    def late(self, request: pytest.FixtureRequest, store: LateStore) -> Late:
        skips: int = request.param
        return lambda: store.armed.append(skips)

    @pytest.fixture
    def silence(self, store: LateStore) -> Silence:
        return store.silence


def test_a_commit_that_another_may_have_overwritten_is_unknown(store: LateStore) -> None:
    """Its own version may have stood there for a while: nobody can say that it did not."""
    cluster = store._node.cluster
    other = LateClient(HandClock(), cluster=cluster, turns=repeat(ON_TIME))
    read_back = store._commit_status

    def overtaken(lost: Unknown, partition: str, writes: Sequence[Write]) -> WriteStatus:
        assert other.commit("p", [Put("a", b"2", b"", NO_VERSION)])
        return read_back(lost, partition, writes)

    store._commit_status = overtaken  # type: ignore[method-assign]
    store.armed.append(9)
    with pytest.raises(Unknown):
        store.commit("p", [Put("a", b"1", b"", NO_VERSION)])


def test_a_result_that_lands_late_leaves_the_newer_one() -> None:
    # rule U3
    cluster, losing = Cluster(), [GivenUp()]

    def step(name: str) -> None:
        if name == "commit" and losing:
            raise losing.pop()

    first, second = Node(cluster, step), Node(cluster, lambda _: None)
    old, new = (Put("k", token_of(at_us), b"%d" % at_us, at_us=at_us) for at_us in (1, 2))
    with pytest.raises(Unknown):
        first.commit("p", [old], 0)
    assert second.commit("p", [new], 0)
    assert first.read("p", 0) == [new]  # before this the old one landed
    assert second.commit("p", [new], 0)
    assert second.read("p", 0) == [new]
