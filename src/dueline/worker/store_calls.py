"""Times the calls of a store, and counts what claims find, for metrics."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from time import perf_counter_ns
from typing import Any, Final

from dueline.core.errors import DuelineError, StoreUnavailable, Unknown
from dueline.core.store import Store
from dueline.worker.tally import Tally

TIMED: Final = (
    *("add", "claim", "prefetch", "settle", "find", "scan", "walk", "lanes", "sweep", "read"),
    *("commit", "together", "append", "tail", "close_until", "expire"),
)
"""Calls of a store that are timed, as far as it has them."""


@contextmanager
def counted_calls(store: Store, tally: Tally) -> Iterator[None]:
    """Count the calls of a store by this process while the block runs."""
    names = [name for name in TIMED if hasattr(store, name)]
    for name in names:
        setattr(store, name, _timed(name, getattr(store, name), tally))
    try:
        yield
    finally:
        for name in names:
            delattr(store, name)


def _timed(name: str, call: Callable[..., Any], tally: Tally) -> Callable[..., Any]:
    @wraps(call)
    def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  (any call of a store)
        began_ns, outcome = perf_counter_ns(), "error"
        try:
            result = call(*arguments, **named)
            outcome = "ok"
        except DuelineError as error:
            kinds = {Unknown: "unknown", StoreUnavailable: "unavailable"}
            outcome = next(
                (word for kind, word in kinds.items() if isinstance(error, kind)), "error"
            )
            raise
        finally:
            tally.called(name, outcome, (perf_counter_ns() - began_ns) // 1000)
        if name in ("claim", "prefetch"):
            tally.claimed(arguments[0], result)
        return result

    return timed
