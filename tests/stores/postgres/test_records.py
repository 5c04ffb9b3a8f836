"""Records on PostgreSQL: writes of one call that concern the same record."""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

import pytest

from dueline.core.store import NO_VERSION, Commit, Delete, Group, Put, Store
from dueline.store_tests.calls import token_of
from dueline.stores.postgres import trips
from tests.harness.postgres import schemas

pytestmark = pytest.mark.postgres


@pytest.fixture
def store() -> Iterator[Store]:
    with schemas() as made:
        store = made.open(made.fresh())
        yield store
        store.close()


def new(key: str, number: int) -> Commit:
    """Return a write that expects no record."""
    return Commit("p", (Put(key, token_of(number), b"%d" % number, expect=NO_VERSION),))


def values(store: Store) -> dict[str, bytes]:
    return {record.key: record.value for record in store.read("p", after=None, limit=9)}


def test_of_two_new_records_with_one_key_the_second_is_refused(store: Store) -> None:
    for commits in ([new("a", 1), new("a", 3)], [new("a", 1), new("b", 2), new("a", 3)]):
        assert list(store.together([Group(commits=commits)])) == [False]
        assert values(store) == {}
    first, second = Group(commits=[new("a", 1), new("b", 2)]), Group(commits=[new("a", 3)])
    assert list(store.together([first, second])) == [True, False]
    assert values(store) == {"a": b"1", "b": b"2"}


def test_later_writes_of_a_group_see_earlier_ones(store: Store) -> None:
    plain = Commit("p", (Put("a", token_of(1), b"1"),))
    assert list(store.together([Group(commits=[plain, new("a", 2)])])) == [False]
    assert values(store) == {}
    replace = Commit("p", (Put("a", token_of(2), b"2", expect=token_of(1)),))
    assert list(store.together([Group(commits=[plain, replace])])) == [True]
    assert values(store) == {"a": b"2"}
    delete = Commit("p", (Delete("a", expect=token_of(2)),))
    assert list(store.together([Group(commits=[delete, new("a", 3)])])) == [True]
    assert values(store) == {"a": b"3"}


def test_an_expectation_that_fails_at_any_place_leaves_all_as_it_was(store: Store) -> None:
    assert store.commit("p", [Put(key, token_of(1), b"1") for key in "bc"])
    commits = [
        new("a", 2),
        Commit("p", (Put("b", token_of(2), b"2", expect=token_of(9)),)),  # another version
        Commit("p", (Delete("c", expect=token_of(1)),)),
        Commit("p", (Put("d", token_of(2), b"2"),)),
    ]
    for order in permutations(commits):
        assert list(store.together([Group(commits=order)])) == [False]
        assert values(store) == {"b": b"1", "c": b"1"}


def trips_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of the numbers of statements in each trip from now on."""
    taken: list[int] = []
    for name in ("run", "run_each"):
        run = getattr(trips, name)

        def counted(
            connection: object, statements: Sequence[object], run: Callable[..., object] = run
        ) -> object:
            taken.append(len(statements))
            return run(connection, statements)

        monkeypatch.setattr(trips, name, counted)
    return taken


def replaced(key: str, number: int, expect: int) -> Commit:
    """Return a write that expects a version."""
    return Commit("p", (Put(key, token_of(number), b"%d" % number, expect=token_of(expect)),))


def test_records_that_hold_are_written_in_one_trip(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.commit("p", [Put("a", token_of(1), b"1")])
    plain = Commit("p", (Put("m", token_of(1), b"1"),))
    taken = trips_of(monkeypatch)
    assert list(store.together([Group(commits=[plain, replaced("a", 2, 1), new("b", 2)])])) == [
        True
    ]
    assert taken == [1]
    groups = [
        Group(commits=[plain, replaced("a", 3, 2), new("c", 3)]),
        Group(commits=[plain, replaced("b", 3, 2), new("d", 3)]),
    ]
    assert list(store.together(groups)) == [True, True]
    assert taken == [1, 1]
    assert values(store) == {"a": b"3", "b": b"3", "c": b"3", "d": b"3", "m": b"1"}


def test_one_of_several_groups_that_is_refused_stops_no_other(store: Store) -> None:
    assert store.commit("p", [Put("a", token_of(1), b"1"), Put("b", token_of(1), b"1")])
    groups = [
        Group(commits=[replaced("a", 2, 1), new("c", 2)]),
        Group(commits=[replaced("b", 2, 9), new("d", 2)]),
        Group(commits=[new("b", 2), new("e", 2)]),
    ]
    assert list(store.together(groups)) == [True, False, False]
    assert list(store.together(groups[1:2])) == [False]
    assert values(store) == {"a": b"2", "b": b"1", "c": b"2"}
