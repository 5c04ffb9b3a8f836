"""Durable functions on a store of any kind, whose worker is disturbed at any call of the store."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import pytest

from dueline import Dueline, JobFailed
from dueline.api.durable_jobs import DurableStep
from dueline.api.job_handle import Job
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.store import Store
from dueline.testing.bench import Drained, _Engine
from tests.harness.addresses import world_of
from tests.harness.clocks import HandClock
from tests.harness.failing_store import FailingStore
from tests.harness.lives import Stopped
from tests.harness.world import World

TURNS_MAX = 60
AFTER_LEASES_S = 61.0

HOWS = ("stop", "lost", "failed", "pause", "overlap")
"""What happens at a call: the process ends before it; its answer is lost; it fails; the process
pauses until others have finished, or have made one turn."""

Answer = TypeVar("Answer")
Declare = Callable[[Dueline, "DurableStage"], None]


KINDS = [
    pytest.param("memory", marks=pytest.mark.memory),
    pytest.param("steps", marks=pytest.mark.memory),
    pytest.param("sqlite", marks=pytest.mark.sqlite),
    pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long]),
    pytest.param("cassandra", marks=[pytest.mark.cassandra, pytest.mark.long]),
    pytest.param("redis", marks=[pytest.mark.redis, pytest.mark.long]),
]


STRIDES = {"memory": 5, "steps": 5, "sqlite": 11, "postgres": 7, "cassandra": 19, "redis": 7}
"""Every n-th call is disturbed, unless DUELINE_TEST_EACH_CALL is set; CALLS_FROM says which.

CI sets it by the commit, so its runs take every call by turns.
"""


class DisturbedStore(FailingStore):
    """A store that does something at the n-th call.

    calls: so far. is_dead: the process that uses it has ended.
    """

    def __init__(self, store: Store, at: int, how: str, meanwhile: Callable[[], object]) -> None:
        """Take the call, from 1, and what happens then."""
        super().__init__(store, {})
        self.is_dead = False
        self._at, self._how, self._meanwhile = at, how, meanwhile

    def _call(self, call: Callable[[], Answer]) -> Answer:
        if self.is_dead:
            raise Stopped
        self.calls += 1
        if self.calls != self._at:
            return call()
        if self._how == "stop":
            self.is_dead = True
            raise Stopped
        if self._how == "failed":
            raise StoreUnavailable
        if self._how == "lost":
            call()
            raise Unknown
        self._meanwhile()
        return call()


class DurableStage:
    """A store, and the processes that run one durable function on it.

    effects: what steps and compensations did, by name. calls: of the disturbed process.
    """

    def __init__(self, store: Store, clock: HandClock, declare: Declare) -> None:
        """Take an empty store."""
        self.store = store
        self.clock = clock
        self.effects: Counter[str] = Counter()
        self.calls = 0
        self.acting: DisturbedStore | None = None
        self.between: Callable[[DurableStage], object] | None = None
        self._declare = declare
        self.onlooker = self.process(store)
        self.job: Job[Any]

    def process(self, store: Store) -> Dueline:
        """Begin a process: an application on the store."""
        app = Dueline("memory://", clock=self.clock)
        vars(app)["store"] = store
        self._declare(app, self)
        return app

    def effect(self, name: str) -> int:
        """Note a side effect; return how often it happened before."""
        assert self.acting is None or not self.acting.is_dead, "a dead process goes on"
        self.effects[name] += 1
        return self.effects[name] - 1

    def begin(self, *args: object, function: str = "run") -> None:
        """Enqueue a function that was declared."""
        self.job = self.onlooker.task_named(function).enqueue(*args)

    def recorded(self) -> Sequence[DurableStep]:
        """Return what the function has recorded."""
        return self.job.steps()

    def is_over(self) -> bool:
        """Return whether the function has ended."""
        return self.job.status in ("done", "dead", "cancelled", "expired")

    def outcome(self) -> object:
        """Return the result, or the state and the error."""
        try:
            return self.job.result(timeout=0)
        except JobFailed as error:
            return f"{self.job.status}: {error}"

    def turn(self, app: Dueline, store: DisturbedStore | None = None) -> None:
        """Let a process work until nothing is due, or it is dead."""
        before, self.acting = self.acting, store
        engine = _Engine(app)
        try:
            for _ in range(TURNS_MAX):
                with suppress(StoreUnavailable):
                    if not engine.step(Drained(), raises=False):
                        return
                if store is not None and store.is_dead:
                    return
        except Stopped:
            pass
        finally:
            self.acting = before

    def others_finish(self) -> None:
        """Let leases end, and other processes see the function through."""
        for _ in range(TURNS_MAX):
            self.clock.advance(AFTER_LEASES_S)
            self.turn(self.process(self.store))
            self._go_between()
            if self.is_over():
                return
        raise AssertionError(f"it never ends: {self.job.status}")

    def _go_between(self) -> None:
        """Do what happens after the first turn, once."""
        between, self.between = self.between, None
        if between is not None and not self.is_over():
            between(self)

    def others_turn(self) -> None:
        """Let leases end, and another process work once."""
        self.clock.advance(AFTER_LEASES_S)
        self.turn(self.process(self.store))

    def run(self, at: int, how: str, *, between: Callable[["DurableStage"], object]) -> bool:
        """Run to the end, disturbed at a call; return whether there was such a call.

        between: what happens after the first turn.
        """
        meanwhile = self.others_turn if how == "overlap" else self.others_finish
        store = DisturbedStore(self.store, at, how, meanwhile)
        first = self.process(store)
        self.between = between
        for _ in range(TURNS_MAX):
            if store.is_dead:
                self.turn(self.process(self.store))
            else:
                self.turn(first, store)
            self._go_between()
            if self.is_over():
                break
            self.clock.advance(AFTER_LEASES_S)
        self.calls = store.calls
        assert self.is_over(), f"it never ends: {self.job.status}"
        return store.calls >= at


Between = Callable[[DurableStage], object]


def nothing(_: DurableStage) -> None:
    """Do nothing."""


class Stages:
    """Makes stages; those on a server share its store, since an empty one is slow to make."""

    def __init__(self, kind: str, folder: Path, declare: Declare, *, every: int = 1) -> None:
        """Take the kind of store, what declares functions, and how many calls are left out."""
        self.is_server = kind in ("postgres", "cassandra", "redis")
        is_each = os.environ.get("DUELINE_TEST_EACH_CALL")
        self.stride = 1 if is_each else every * STRIDES.get(kind, 1)
        self._kind, self._folder, self._count = kind, folder, 0
        self._declare = declare
        self._stack = ExitStack()
        self._world: World | None = None

    def fresh(self) -> DurableStage:
        """Make a stage."""
        if self._world is None or not self.is_server:
            self.close()
            self._count += 1
            folder = self._folder / str(self._count)
            folder.mkdir()
            self._world = self._stack.enter_context(world_of(self._kind, folder))
        return DurableStage(self._world.store, self._world.clock, self._declare)

    def close(self) -> None:
        """Close the stores."""
        self._stack.close()

    def _first_call(self, function: str, how: str) -> int:
        """Return the first call that is disturbed, from 1; others of other functions and hows."""
        place = crc32(f"{self._kind} {function} {how}".encode())
        return 1 + (place + int(os.environ.get("CALLS_FROM", "0"))) % self.stride

    def disturbed(
        self, function: str, how: str, *args: object, between: Between = nothing
    ) -> Iterator[tuple[DurableStage, str]]:
        """Yield the stages of runs in each of which another call of the store is disturbed."""
        at = self._first_call(function, how) - self.stride
        was_disturbed = True
        while was_disturbed:
            at += self.stride
            stage = self.fresh()
            stage.begin(*args, function=function)
            was_disturbed = stage.run(at, how, between=between)
            yield stage, f"{how} at call {at}: {dict(stage.effects)}, {stage.outcome()}"
        assert at > 20, "the function makes few calls"
