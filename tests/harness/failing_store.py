"""A store that fails on demand."""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from dueline.core.errors import Unknown
from dueline.core.store import Store
from dueline.core.store_capabilities import PrefetchResult, SupportsPrefetch

P = ParamSpec("P")
Answer = TypeVar("Answer")


class Fault(Enum):
    """A fault of a call; the caller gets `Unknown` either way."""

    BEFORE = "dropped before it reached the store: nothing happened"
    AFTER = "applied, and the answer was lost"


def _forwarded(
    method: Callable[Concatenate[Any, P], Answer],
) -> Callable[Concatenate["FailingStore", P], Answer]:
    """Return a method of the protocol that passes on, or fails."""

    @wraps(method)
    def call(self: "FailingStore", /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        forward: Callable[P, Answer] = getattr(self._store, method.__name__)
        return self._call(lambda: forward(*args, **kwargs))

    return call


class FailingStore:
    """Passes calls on to a store, and fails the n-th by a plan.

    To try every point of failure, run a scenario with `{1: fault}`, `{2: fault}`, … until `calls`
    stays below the number that should fail.

    Attributes:
      calls: Number of calls of the store so far; the first one is number 1.
    """

    transactional: bool
    scope: Literal["process", "machine", "network"]

    def __init__(self, store: Store, plan: Mapping[int, Fault]) -> None:
        self.transactional = store.transactional
        self.scope = store.scope
        self.calls = 0
        self._store = store
        self._plan = plan

    def _call(self, call: Callable[[], Answer]) -> Answer:
        self.calls += 1
        number, fault = self.calls, self._plan.get(self.calls)
        if fault is Fault.BEFORE:
            raise Unknown(f"call {number} was {fault.value}")
        answer = call()
        if fault is Fault.AFTER:
            raise Unknown(f"call {number} was {fault.value}")
        return answer

    add = _forwarded(Store.add)
    claim = _forwarded(Store.claim)
    settle = _forwarded(Store.settle)
    find = _forwarded(Store.find)
    scan = _forwarded(Store.scan)
    walk = _forwarded(Store.walk)
    lanes = _forwarded(Store.lanes)
    sweep = _forwarded(Store.sweep)
    read = _forwarded(Store.read)
    commit = _forwarded(Store.commit)
    append = _forwarded(Store.append)
    tail = _forwarded(Store.tail)
    close_until = _forwarded(Store.close_until)
    expire = _forwarded(Store.expire)
    together = _forwarded(Store.together)
    clock_us = _forwarded(Store.clock_us)
    _prefetch = _forwarded(SupportsPrefetch.prefetch)

    def prefetch(self, *args: Any, **kwargs: Any) -> PrefetchResult:  # noqa: ANN401  (as they come)
        """Pass on, or fail; return no job if the store does not support prefetch."""
        if not isinstance(self._store, SupportsPrefetch):
            return PrefetchResult([], {})
        return self._prefetch(*args, **kwargs)

    def describe(self) -> Mapping[str, str]:
        """Pass on; this never fails and is not counted."""
        return self._store.describe()

    def close(self) -> None:
        """Pass on; this never fails and is not counted."""
        self._store.close()


class Interrupted(FailingStore):
    """The store of a process that is interrupted before its n-th call: others act meanwhile.

    Attributes:
      number: The call, counted like `calls`.
      act: What others do before it.
    """

    def __init__(self, store: Store, number: int, act: Callable[[], object]) -> None:
        super().__init__(store, {})
        self.number, self.act = number, act

    def _call(self, call: Callable[[], Answer]) -> Answer:
        self.calls += 1
        if self.calls == self.number:
            self.act()
        return call()
