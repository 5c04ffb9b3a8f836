"""Fast creation and reading of many named tuples. Hot path: the benchmark `default`.

Other modules that use this name their benchmarks, too: `make structure` checks it.
"""

from collections.abc import Callable, Iterable
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeVar, cast

T = TypeVar("T", bound=tuple[Any, ...])


def made(kind: type[T], rows: Iterable[tuple[Any, ...]]) -> list[T]:
    """Return a named tuple for each row, several times as fast as by its constructor.

    Nothing is checked, not even the lengths: keep the call next to its list of columns.

    Args: rows: all fields, in order.
    """
    new: Any = tuple.__new__  # the checker knows no kind here
    return cast("list[T]", list(map(new, repeat(kind), rows)))


def field(kind: type[tuple[Any, ...]], *names: str) -> Callable[[Any], Any]:
    """Return a C function that reads a field of a named tuple, or several as a tuple.

    For `map` over many tuples, without a Python call for each.
    """
    places: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]  # a named tuple's
    return itemgetter(*map(places.index, names))
