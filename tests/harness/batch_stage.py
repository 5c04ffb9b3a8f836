"""A store, and processes that map the same items on it and run their jobs."""

from collections import Counter
from contextlib import suppress
from typing import Final

from dueline import Dueline
from dueline.api.batch import Batch
from dueline.core.errors import StoreUnavailable
from dueline.core.store import Store
from dueline.testing.bench import Drained, _Engine
from tests.harness.clocks import HandClock

ITEMS: Final = 5
AFTER_LEASES_S: Final = 61.0
_TURNS_MAX: Final = 60


class Stage:
    """A store, and processes that map the same items on it and run their jobs."""

    def __init__(self, store: Store, clock: HandClock) -> None:
        self.store, self.clock = store, clock
        self.calls: Counter[int] = Counter()
        self.is_last = False

    def process(self, store: Store) -> Dueline:
        """Begin a process: an application on the store."""
        app = Dueline("memory://", clock=self.clock)
        vars(app)["store"] = store

        @app.task(name="note")
        def note(number: int) -> int:
            self.calls[number] += 1
            return number

        return app

    def map(self, store: Store, *, keyed: bool) -> Batch[int]:
        """Map the items."""
        task = self.process(store).task_named("note")
        return task.map(range(ITEMS), name="b", key=str if keyed else None)

    def work(self, store: Store) -> None:
        """Run what is due, until nothing is."""
        engine = _Engine(self.process(store))
        for _ in range(_TURNS_MAX):
            with suppress(StoreUnavailable):
                if not engine.step(Drained(), raises=False):
                    return

    def meanwhile(self, *, keyed: bool, works: bool) -> None:
        """Map the items in another process, and maybe run the jobs."""
        self.map(self.store, keyed=keyed)
        if works:
            self.work(self.store)

    def drain(self) -> None:
        """Run everything, with what another process holds."""
        for _ in range(4):
            self.work(self.store)
            self.clock.sleep(AFTER_LEASES_S)
