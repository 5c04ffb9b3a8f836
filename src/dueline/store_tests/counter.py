"""A record that several count up."""

from dueline.core.errors import Unknown
from dueline.core.store import NO_VERSION, Put, Store
from dueline.store_tests.given import token_of

ROUNDS_MAX = 10_000
COUNTS = "counts"


def count_up(store: Store, *, times: int, writer: int) -> int:
    """Count a record up by conditional writes, as often as told.

    Returns:
        How many further writes may have been applied: the store raised Unknown for them.
    """
    done = unknown = 0
    for attempt in range(ROUNDS_MAX):
        value, version = read_count(store)
        fresh = token_of(1 + writer * ROUNDS_MAX + attempt)
        try:
            done += store.commit(COUNTS, [Put("count", fresh, b"%d" % (value + 1), version)])
        except Unknown:
            unknown += 1
        if done == times:
            return unknown
    raise AssertionError("the record was never free to be counted up")


def read_count(store: Store) -> tuple[int, bytes]:
    """Read how far the record was counted, and its version."""
    for record in store.read(COUNTS, after=None, limit=1):
        return int(record.value), record.version
    return 0, NO_VERSION
