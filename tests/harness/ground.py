"""What test functions take, for those who call them: mutants, and tests of other stores."""

from collections.abc import Callable
from functools import cached_property
from inspect import signature
from pathlib import Path

from dueline.core.store import Store
from dueline.jobs.queue import Queues
from tests.harness.clocks import HandClock
from tests.harness.stream_stage import Stage
from tests.harness.world import World, store_on


class Ground:
    """Fixtures by their names, on an empty store of a kind."""

    def __init__(self, kind: str, tmp_path: Path) -> None:
        """Take a kind of store, and a folder that nobody else uses."""
        self.kind = kind
        self.tmp_path = tmp_path
        self.clock = HandClock()

    @cached_property
    def store(self) -> Store:
        """The store, in time that stands still."""
        return store_on(self.kind, self.tmp_path, self.clock)

    @cached_property
    def world(self) -> World:
        """An engine, and workers that only say that they live."""
        return World(self.store, self.clock)

    @property
    def queues(self) -> Queues:
        """The engine."""
        return self.world.queues

    @cached_property
    def stage(self) -> Stage:
        """Members of a group that reads a stream."""
        return Stage(self.store, self.clock)

    def call(self, test: Callable[..., object], **given: object) -> None:
        """Call a test with what is given, and with fixtures for its other parameters."""
        names = signature(test).parameters
        test(**{name: given[name] if name in given else getattr(self, name) for name in names})
