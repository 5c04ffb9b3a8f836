"""Record of a stream's run: events of processes, and observed writes."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dueline.coordination.leases import Grant
from dueline.core.codec import decode
from dueline.core.ids import derived
from dueline.core.store import Put
from simulation.streams.scenario import TASK_GROUP

Told = tuple[str, int]
"""An event as its producer knows it: its series (a producer's events of one key), and which."""


class Watched(dict[Any, Any]):
    """A table whose writes are observed."""

    def __init__(self, look: Callable[[Any, Any], object]) -> None:
        """Take what is called with the key and the new value of each write."""
        super().__init__()
        self._look = look

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401
        self._look(key, value)
        super().__setitem__(key, value)


class Place(NamedTuple):
    """A shard and a position in it."""

    shard: int
    at_us: int
    id: str


class Ledger:
    """Everything that was told and seen. faults: stories by verdict, in words.

    unsure: events of appends with an outcome that was once unknown: they may exist twice.
    lies: tells whether an event lies where it was stored.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        """Hold nothing yet. now: tells the time, in microseconds since the beginning."""
        self.sent: set[Told] = set()
        self.acknowledged: dict[Told, Place] = {}
        self.unsure: set[Told] = set()
        self.faults: dict[str, list[str]] = {}
        self.counts: Counter[str] = Counter()
        self.handled: dict[str, set[Told]] = defaultdict(set)
        self.produced: dict[str, dict[Told, Place]] = defaultdict(dict)
        self.grants: dict[tuple[str, str], Grant] = {}
        self.lies: Callable[[Place], bool] = lambda _: False
        self._now = now
        self._begun: dict[str, set[Told]] = defaultdict(set)
        self._furthest: dict[tuple[str, str], int] = {}
        self._at_work: Counter[tuple[str, str]] = Counter()
        self._checkpoints: dict[tuple[str, str], tuple[int, int, str, int]] = {}
        self._marks: dict[Any, int] = {}
        self._going: dict[int, Place] = {}
        self._begins: dict[str, dict[int, Place]] = defaultdict(dict)

    def blame(self, verdict: str, story: str) -> None:
        """Record a fault."""
        at_s = self._now() / 1e6
        self.faults.setdefault(verdict, []).append(f"at {at_s:.6f} s: {story}")

    # What producers say

    def append(self, told: Iterable[Told]) -> None:
        """Record a sent event."""
        self.sent |= set(told)

    def acknowledge(self, told: Told, place: Place) -> None:
        """Record a durable event and its position."""
        self.counts["appended"] += 1
        self.acknowledged[told] = place

    # What handlers say

    def begin(self, group: str, told: Told, place: Place) -> None:
        """Record that an event is delivered to a group, first in the order of its key."""
        self.counts["handed"] += 1
        if told not in self.sent:
            self.blame("unexpected", f"{group} receives {_text(told)}, which was never appended")
        if told in self._begun[group]:
            self.counts["handed again"] += 1
            return
        self._begun[group].add(told)
        series, number = told
        furthest = self._furthest.get((group, series), -1)
        if number < furthest:
            self.blame(
                "order",
                f"{group} receives {_text(told)} of {place} after number {furthest} of its series",
            )
        self._furthest[group, series] = max(number, furthest)

    def work(self, group: str, shard: int, epoch: int) -> None:
        """Record that a batch is delivered under an epoch."""
        place = group, str(shard)
        self._at_work[place] = max(epoch, self._at_work[place])

    def end(self, group: str, told: Iterable[Told]) -> None:
        """Record that a handler has finished events."""
        self.handled[group] |= set(told)

    def produce(self, group: str, told: Told, place: Place) -> None:
        """Record that a product was committed with its position."""
        self.counts["produced"] += 1
        before = self.produced[group].get(told)
        if before is not None and (before == place or told not in self.unsure):
            self.blame(
                "doubled",
                f"{group} has two products of {_text(told)}: of {before}, and of {place}",
            )
        self.produced[group][told] = place
        self.handled[group].add(told)

    # What is seen where it is stored

    def leases(self, scope: str) -> Watched:
        """Return the table of a scope's leases: no epoch is granted twice or decreases."""

        def look(name: str, put: Put) -> None:
            new = decode(put.value, Grant)
            old = self.grants.get((scope, name))
            has_changed = old is not None and old.holder != new.holder
            if old is not None and (new.epoch < old.epoch + has_changed):
                self.blame(
                    "epoch",
                    f"{new.holder} is granted {scope}/{name} under epoch {new.epoch}, "
                    f"which {old.holder} had before, or a later one ({old.epoch})",
                )
            self.counts["granted"] += old is None or new.epoch != old.epoch
            self.grants[scope, name] = new

        return Watched(look)

    def checkpoints(self, group: str) -> Watched:
        """Return the table of a group's checkpoints: they and their epochs only increase."""

        def look(shard: str, put: Put) -> None:
            told = decode(put.value, dict[str, Any])
            new = (told["epoch"], -1 if told["at_us"] is None else told["at_us"], told["id"])
            old = self._checkpoints.get((group, shard))
            if old is not None and (new[0] < old[0] or new[1:] < old[1:3]):
                self.blame(
                    "back",
                    f"the checkpoint of {group} in shard {shard} goes from {old[1:3]} under epoch "
                    f"{old[0]} back to {new[1:]} under epoch {new[0]}",
                )
            if new[0] < self._at_work[group, shard]:
                self.blame(
                    "stale",
                    f"the checkpoint of {group} in shard {shard} is moved under epoch {new[0]}, "
                    f"although batches were delivered under {self._at_work[group, shard]}",
                )
            if told["rows"] == 0 and told["at_us"] is not None:
                self._pass(group, Place(int(shard), *new[1:]))
            self.counts["checkpoints"] += 1
            self._checkpoints[group, shard] = (*new, told["rows"])

        return Watched(look)

    def going(self) -> Watched:
        """Return the table of announced deletions of a shard."""

        def look(shard: str, put: Put) -> None:
            told = decode(put.value, dict[str, Any])
            self._going[int(shard)] = Place(int(shard), told["at_us"], told["id"])

        return Watched(look)

    def registered(self) -> Watched:
        """Return the table of groups: one begins behind the announced deletions (rule F6)."""

        def look(group: str, _: Put) -> None:
            self._begins[group] = dict(self._going)

        return Watched(look)

    def _pass(self, group: str, to: Place) -> None:
        """Note that a group passes rows of which it was not handed one.

        That is right for those that were said to go while it was registered: they stay then.
        """
        begin = self._begins[group].get(to.shard)
        passed = [place for place in self.acknowledged.values() if _is_between(begin, place, to)]
        if to == self._going.get(to.shard) and all(map(self.lies, passed)):
            self._begins[group][to.shard] = to

    def marks(self) -> Watched:
        """Return the table of watermarks: they only increase."""

        def look(shard: Any, mark: int) -> None:  # noqa: ANN401
            if mark < self._marks.get(shard, -1):
                self.blame("mark", f"the watermark of {shard} decreases from {self._marks[shard]}")
            self._marks[shard] = mark

        return Watched(look)

    def mark(self, stream: str, shard: int) -> int:
        """Tell the mark of a shard, as it is stored now."""
        return self._marks.get((stream, shard), -1)

    # At the end

    def waiting(self, groups: Iterable[str]) -> list[str]:
        """Record acknowledged events that a group has not handled."""
        return [
            f"{group} did not receive {_text(told)}, acknowledged at {place}"
            for group in groups
            for told, place in self._owed(group)
            if told not in self.handled[group]
        ]

    def unproduced(self, groups: Iterable[str]) -> list[str]:
        """Record acknowledged events without a product."""
        return [
            f"{group} has no product of {_text(told)}, acknowledged at {place}"
            for group in groups
            for told, place in self._owed(group)
            if told not in self.produced[group]
        ]

    def undelivered(self, jobs: Mapping[str, int]) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with the jobs of events, as verdict and story.

        Args: jobs: how many rows there are, by the id of the job.
        """
        for told, place in self._owed(TASK_GROUP):
            job = derived(TASK_GROUP.encode() + b"\0" + bytes.fromhex(place.id), 0).hex()
            if not jobs[job]:
                yield "missed", f"{_text(told)}, acknowledged at {place}, has no job"
            if jobs[job] > 1 and told not in self.unsure:
                yield "doubled", f"{_text(told)} of {place} has {jobs[job]} jobs"

    def _owed(self, group: str) -> Iterator[tuple[Told, Place]]:
        """Return acknowledged events that were not deleted before a group began."""
        begins = self._begins[group]
        for told, place in self.acknowledged.items():
            begin = begins.get(place.shard)
            if begin is None or place > begin:
                yield told, place


def _is_between(begin: Place | None, place: Place, end: Place) -> bool:
    return place.shard == end.shard and (begin is None or place > begin) and place <= end


def _text(told: Told) -> str:
    return f"number {told[1]} of {told[0]}"
