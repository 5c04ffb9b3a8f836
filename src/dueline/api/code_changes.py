"""Changes that an application's code makes by hand, with the code that makes them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dueline.core.actor import Actor, calling_code
from dueline.jobs.queue import Queues


def actor_in(queues: Queues) -> Actor:
    """Return who changes jobs: whom a door has named, otherwise the calling code."""
    return queues.actor or calling_code()


def acting(queues: Queues) -> Queues:
    """Return queues whose changes are recorded as those of `actor_in`."""
    return queues.by(actor_in(queues))


@contextmanager
def recorded_change(queues: Queues, what: str, target: str) -> Iterator[None]:
    """Record a change in the list of what operators did, as those of other doors are."""
    from dueline.admin.operations import recorded  # noqa: PLC0415  (slow to load)

    with recorded(queues.engine, actor_in(queues), what, target):
        yield


def configure(queues: Queues, name: str, changes: Mapping[str, Any]) -> None:
    """Change the settings of a queue."""
    said = ", ".join(f"{word}={value}" for word, value in sorted(changes.items()))
    with recorded_change(queues, f"set {said}", name):
        queues.engine.catalog.configure(name, **changes)
