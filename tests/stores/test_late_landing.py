"""Requests that land late, on the memory store without transactions (rule U5)."""

from collections.abc import Sequence
from itertools import repeat

import pytest

from dueline.core.errors import Unknown
from dueline.core.readback import WriteStatus
from dueline.core.store import NO_VERSION, Put, Write
from dueline.store_tests.calls import token_of
from tests.harness import late_landing
from tests.harness.cases.stores_late_landing import LateStore
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster, GivenUp, Node
from tests.harness.late_answers import ON_TIME, LateClient

pytestmark = pytest.mark.memory


@pytest.fixture
def store() -> LateStore:
    return LateStore()


@pytest.fixture(params=range(5), ids=lambda skips: f"after {skips} steps")
def late(request: pytest.FixtureRequest, store: LateStore) -> late_landing.Late:
    skips: int = request.param
    return lambda: store.armed.append(skips)


def test_a_claim_has_its_rows(store: LateStore, late: late_landing.Late) -> None:
    late_landing.a_claim_has_its_rows(store, late)


def test_a_claim_of_another_is_not_taken_for_ones_own(
    store: LateStore, late: late_landing.Late
) -> None:
    late_landing.a_claim_of_another_is_not_taken_for_ones_own(store, late)


@pytest.mark.parametrize("verdict", late_landing.VERDICTS)
def test_a_verdict_holds(store: LateStore, late: late_landing.Late, verdict: str) -> None:
    late_landing.a_verdict_holds(store, late, verdict)


def test_verdicts_beside_it_hold(store: LateStore, late: late_landing.Late) -> None:
    late_landing.verdicts_beside_it_hold(store, late)


def test_a_commit_holds(store: LateStore, late: late_landing.Late) -> None:
    late_landing.a_commit_holds(store, late)


def test_an_outcome_is_known_by_whoever_repeats_it(
    store: LateStore, late: late_landing.Late
) -> None:
    late_landing.an_outcome_is_known_by_whoever_repeats_it(store, late, store.silence)


def test_another_outcome_under_the_same_claim_is_refused(store: LateStore) -> None:
    late_landing.another_outcome_under_the_same_claim_is_refused(store)


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

    one, two = Node(cluster, step), Node(cluster, lambda _: None)
    old, new = (Put("k", token_of(at_us), b"%d" % at_us, at_us=at_us) for at_us in (1, 2))
    with pytest.raises(Unknown):
        one.commit("p", [old], 0)
    assert two.commit("p", [new], 0)
    assert one.read("p", 0) == [new]  # before this the old one landed
    assert two.commit("p", [new], 0)
    assert two.read("p", 0) == [new]
