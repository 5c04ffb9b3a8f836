"""Power failures of a queue file, and whether all that was acknowledged is there."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple
from unittest.mock import patch

import apsw

from dueline.api.connect import open_store
from dueline.core.errors import DuelineError
from dueline.store_tests.calls import id_of
from dueline.stores.sqlite import wal_checkpointer
from tests.kills.power.disk import Mark, Platter, Step, recording
from tests.kills.power.life import Life

NAME: Final = "queue.db"
CALLS: Final = 150

Synchronous = Literal["FULL", "NORMAL"]
Copier = Literal["commits", "a thread"]
Loss = Literal["claims", "all", "nothing"]

NEVER: Final = 10**9
COPIED: Final[Mapping[Copier, tuple[int, int]]] = {"commits": (NEVER, 500), "a thread": (50, NEVER)}
"""After how many pages a thread copies the log, and a commit does: often, in a short life."""


class Recording(NamedTuple):
    """A life on a disk.

    steps: what the disk did, with a mark after each acknowledged call; mark 0 is the new file.
    states: what the file held at each mark, as a fingerprint. sure: the first of them that may be
    found from each mark on: claims may be taken back, until anything else is written.
    """

    steps: Sequence[Step]
    states: Sequence[str]
    sure: Sequence[int]


class Image(NamedTuple):
    """What a power failure left: after which step and acknowledged call, and its fingerprint."""

    step: int
    acknowledged: int
    found: str


class Report(NamedTuple):
    """How many images were made; how many hold a call under way; what is wrong, in words."""

    images: int
    ahead: int
    faults: Sequence[str]


def record(
    folder: Path,
    seed: int,
    *,
    synchronous: Synchronous = "FULL",
    flushes: bool = True,
    copier: Copier = "commits",
) -> Recording:
    """Let a store live in an empty folder, on a disk that is watched.

    Args: flushes: whether the disk flushes when it is told to. copier: who copies the log.
    """
    path = folder / NAME
    states: list[str] = []
    sure: list[int] = []
    pages, most = COPIED[copier]
    with (
        patch.object(wal_checkpointer, "PAGES", pages),
        patch.object(wal_checkpointer, "PAGES_MAX", most),
        recording(folder, flushes=flushes) as disk,
    ):
        store = open_store(f"sqlite:///{path}?synchronous={synchronous}")
        store.find([id_of(0)])
        life = Life(store, random.Random(seed))
        for number in (0, *range(1, CALLS + 1)):
            if number:
                life.call()
            disk.steps.append(Mark(number))
            states.append(fingerprint(path))
            is_written = number and states[-1] != states[-2] and not life.has_claimed
            is_sure = not number or is_written or life.has_flushed
            sure.append(number if is_sure else sure[-1])
        steps = list(disk.steps)
        store.close()
    return Recording(steps, states, sure)


def fail(recorded: Recording, folder: Path, *, images: int, seed: int) -> Sequence[Image]:
    """Let the power fail at random steps of a recording, and look at what is left each time.

    Args: folder: an empty one, for the images.
    """
    chance = random.Random(seed)
    begin = recorded.steps.index(Mark(0))
    cuts = sorted(chance.randrange(begin, len(recorded.steps)) for _ in range(images))
    platter, acknowledged, played = Platter(), 0, 0
    left = []
    for cut in cuts:
        for step in recorded.steps[played : cut + 1]:
            if isinstance(step, Mark):
                acknowledged = step.number
            else:
                platter.play(step)
        played = cut + 1
        left.append(Image(cut, acknowledged, _state_of(platter.image(chance), folder)))
    return left


def judge(
    recorded: Recording,
    left: Sequence[Image],
    *,
    may_lose: Loss = "claims",
) -> Report:
    """Tell which images hold what they must not.

    Args: may_lose: what was acknowledged last may be gone, if it was a claim or whatever it was,
      but nothing before what is there.
    """
    ahead, faults = 0, []
    for cut, acknowledged, state in left:
        under_way = recorded.states[acknowledged + 1 : acknowledged + 2]
        ahead += state in under_way
        oldest = {"claims": recorded.sure[acknowledged], "all": 0, "nothing": acknowledged}[
            may_lose
        ]
        if state not in (*recorded.states[oldest : acknowledged + 1], *under_way):
            what = state if " " in state else "holds another state than acknowledged"
            faults.append(f"step {cut}, call {acknowledged}: {what}")
    return Report(len(left), ahead, faults)


def _state_of(image: Mapping[str, bytes], folder: Path) -> str:
    """Start again from an image: its fingerprint, or in words what is wrong with it."""
    for name, content in image.items():
        (folder / name).write_bytes(content)
    try:
        store = open_store(f"sqlite:///{folder / NAME}")
        store.find([id_of(0)])
        state = fingerprint(folder / NAME, is_checked=True)
        store.close()
    except (DuelineError, apsw.Error) as error:
        state = f"cannot be read: {error}"
    for path in folder.iterdir():
        path.unlink()
    return state


def fingerprint(path: Path, *, is_checked: bool = False) -> str:
    """Digest all rows of all tables of a file; or say in words that it is damaged."""
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        if is_checked and (damage := database.execute("PRAGMA integrity_check").get) != "ok":
            return f"is damaged: {damage}"
        digest = hashlib.sha256()
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
        query = 'SELECT * FROM "{}"'
        for (name,) in database.execute(tables).fetchall():
            rows = database.execute(query.format(name)).fetchall()
            digest.update(repr((name, sorted(map(repr, rows)))).encode())
        return digest.hexdigest()
    finally:
        database.close()
