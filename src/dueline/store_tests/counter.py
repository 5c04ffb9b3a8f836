"""A record that several count up."""

from dueline.core.store import NO_VERSION, Put, Store
from dueline.store_tests.given import token_of

ROUNDS_MAX = 10_000
COUNTS = "counts"


def count_up(store: Store, *, times: int, writer: int) -> None:
    """Count a record up by conditional writes, as often as told."""
    done = 0
    for attempt in range(ROUNDS_MAX):
        value, version = read_count(store)
        fresh = token_of(1 + writer * ROUNDS_MAX + attempt)
        done += store.commit(COUNTS, [Put("count", fresh, b"%d" % (value + 1), version)])
        if done == times:
            return
    raise AssertionError("the record was never free to be counted up")


def read_count(store: Store) -> tuple[int, bytes]:
    """Read how far the record was counted, and its version."""
    for record in store.read(COUNTS, after=None, limit=1):
        return int(record.value), record.version
    return 0, NO_VERSION
