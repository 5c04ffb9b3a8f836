"""Parked events of a group: list them, and have them handled again."""

from dueline.core.engine import Engine
from dueline.core.errors import NotFound
from dueline.core.store import Records, Store
from dueline.streams import dead_letters, groups
from dueline.streams.event import Event


def names_of(records: Records, stream: str, group: str) -> list[str]:
    """Return the parked keys of a group, sorted."""
    known = groups.places(records, stream, group).values()
    return sorted(
        {key for checkpoint in known for key in dead_letters.read_note(checkpoint.note).parked}
    )


def events_of(store: Store, stream: str, group: str) -> list[Event]:
    """Return the parked events of a group, in order for each shard."""
    events: list[Event] = []
    for shard, present in groups.places(store, stream, group).items():
        note = dead_letters.read_note(present.note)
        for key in note.parked:
            after, most = note.place(key), dead_letters.LISTED_MAX
            rows = dead_letters.rows_of(
                store, stream, group, shard, key=key, after=after, limit=most
            )
            events += map(Event, rows)
    return sorted(events, key=lambda event: event.row[1:4])


def unpark(engine: Engine, stream: str, group: str, name: str | None = None) -> int:
    """Request that a parked key is handled again, or each of them; return how many.

    Raises: NotFound: the group has no such parked key.
    """
    parked = names_of(engine.store, stream, group)
    if name is not None and name not in parked:
        raise NotFound(
            f"The group {stream}/{group} has no parked events of the {name}.",
            hint=f"See `dueline streams parked {stream} --group {group}`.",
        )
    asked = parked if name is None else [name]
    for key in asked:
        dead_letters.ask(engine.store, stream, group, key, engine.ids.token())
    return len(asked)
