"""Stores that are broken on purpose."""

from collections.abc import Sequence

from dueline.core.job import Job, State, Token
from dueline.core.lane import Lane, Marks, Pointer, bucket_of
from dueline.core.store import (
    Claimed,
    Extend,
    Group,
    Lease,
    Move,
    Put,
    Record,
    Verdict,
    Want,
    Write,
)
from dueline.core.store_capabilities import LanesWithRows
from dueline.stores.memory.store import MemoryStore


class AnyToken(MemoryStore):
    """Lets every verdict hold on a row that is there."""

    def _settle(self, verdict: Verdict) -> bool:
        row = self._find(verdict.job.id)
        return super()._settle(verdict._replace(job=row) if row else verdict)


class LateIsStale(MemoryStore):
    """Refuses the verdict on a claim whose lease has ended, though nobody took it over."""

    now_us = 0

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        self.now_us = max(self.now_us, lease.now_us + 10**9)
        return super().claim(wants, limit=limit, lease=lease)

    def _settle(self, verdict: Verdict) -> bool:
        row = self._find(verdict.job.id)
        is_late = row is not None and row.is_claimed() and row.at_us <= self.now_us
        return not is_late and super()._settle(verdict)


class ExtendRenews(MemoryStore):
    """Changes the token with every extension."""

    def _settle(self, verdict: Verdict) -> bool:
        held = super()._settle(verdict)
        row = self._find(verdict.job.id)
        if held and row is not None and isinstance(verdict, Extend):
            self._put(row._replace(token=Token(row.token[::-1])))
        return held


class ExtendForgetsTheStart(MemoryStore):
    """Takes a started job back to merely claimed when it is extended."""

    def _settle(self, verdict: Verdict) -> bool:
        held = super()._settle(verdict)
        row = self._find(verdict.job.id)
        if held and row is not None and isinstance(verdict, Extend) and not verdict.started:
            self._put(row._replace(state=State.CLAIMED))
        return held


class _ClaimChanged(MemoryStore):
    """Changes each row that a claim brings."""

    def changed(self, job: Job, was: Job | None) -> Job:
        raise NotImplementedError

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        claimed = super().claim(wants, limit=limit, lease=lease)
        jobs = [self.changed(job, claimed.died.get(job.id)) for job in claimed.jobs]
        for job in jobs:
            self._put(job)
        return claimed._replace(jobs=jobs)


class FenceStays(_ClaimChanged):
    """Does not raise the fence."""

    def changed(self, job: Job, was: Job | None) -> Job:  # noqa: ARG002  this one looks at nothing
        return job._replace(fence=job.fence - 1)


class EveryDeathIsACrash(_ClaimChanged):
    """Counts a crash for jobs that were never started."""

    def changed(self, job: Job, was: Job | None) -> Job:
        return job._replace(crashes=was.crashes + 1, alone=True) if was else job


class NoDeathIsACrash(_ClaimChanged):
    """Counts no crash for jobs that were started."""

    def changed(self, job: Job, was: Job | None) -> Job:
        return job._replace(crashes=was.crashes) if was else job


class Early(MemoryStore):
    """Claims a microsecond before the time."""

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        return super().claim(wants, limit=limit, lease=lease._replace(now_us=lease.now_us + 1))


class Unordered(MemoryStore):
    """Gives the jobs of a claim by their ids alone."""

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        claimed = super().claim(wants, limit=limit, lease=lease)
        return claimed._replace(jobs=sorted(claimed.jobs, key=lambda job: (job.lane, job.id)))


class OwnPreference(MemoryStore):
    """Visits the lanes in an order of its own."""

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        return super().claim(sorted(wants), limit=limit, lease=lease)


class Greedy(MemoryStore):
    """Takes the limit for that of each lane."""

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        each = [super(Greedy, self).claim([want], limit=limit, lease=lease) for want in wants]
        return Claimed(
            [job for claimed in each for job in claimed.jobs],
            {job_id: job for claimed in each for job_id, job in claimed.died.items()},
            {lane: at for claimed in each for lane, at in claimed.next_at_us.items()},
        )


class Generous(MemoryStore):
    """Takes as many from a lane as the limit allows, whatever the want says."""

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        return super().claim(
            [want._replace(most=10**6) for want in wants], limit=limit, lease=lease
        )


class NextOmitsTheClaimed(MemoryStore):
    """Counts only waiting rows in `next_at_us`."""

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        claimed = super().claim(wants, limit=limit, lease=lease)
        waiting = {
            lane: min(
                (row.at_us for row in self._rows.get(lane, {}).values() if not row.is_claimed()),
                default=None,
            )
            for lane in claimed.next_at_us
        }
        return claimed._replace(next_at_us=waiting)


class DeadInSilence(MemoryStore):
    """Does not tell whose claim died."""

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        return super().claim(wants, limit=limit, lease=lease)._replace(died={})


class ClaimLooksAtTheClock(MemoryStore):
    """Claims nothing that the machine's clock does not hold due."""

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        now_us = min(lease.now_us, self.clock_us())
        return super().claim(wants, limit=limit, lease=lease._replace(now_us=now_us))


class AddOverwrites(MemoryStore):
    """Writes a birth over a row that is there."""

    def _add(self, job: Job) -> None:
        self._list(job.lane, job.lane.bucket)
        self._put(job)


class AddForgetsTheLane(MemoryStore):
    """Stores a job in a lane that is not listed."""

    def _add(self, job: Job) -> None:
        if job.id not in self._lane_of:
            self._put(job)


class ListsUnderClosedBuckets(MemoryStore):
    """Lists a late birth under its own bucket, which readers have read."""

    def _list(self, lane: Lane, listing: int) -> None:
        table = self._listed.setdefault((lane.queue, lane.shard), {})
        self._set(table, Pointer(listing, lane), value=True)


class ListsOnce(MemoryStore):
    """Leaves a lane where it is listed, though readers may have forgotten it there."""

    def _list(self, lane: Lane, listing: int) -> None:
        table = self._listed.get((lane.queue, lane.shard), {})
        if not any(pointer.lane == lane and pointer.listing <= listing for pointer in table):
            super()._list(lane, listing)


class MoveNeverLists(MemoryStore):
    """Moves a job forward where nobody looks."""

    def _move(self, row: Job, move: Move) -> None:
        before = dict(self._listed.get((row.lane.queue, row.lane.shard), {}))
        super()._move(row, move)
        if move.to is None:
            self._listed[row.lane.queue, row.lane.shard] = before


class MoveListsByWhatWasRead(MemoryStore):
    """Goes by the time that the verdict's reader saw, not by the row's."""

    def _move(self, row: Job, move: Move) -> None:
        at_us = row.at_us
        super()._move(row._replace(at_us=min(at_us, move.job.at_us)), move)


class CarryForgetsTheLane(MemoryStore):
    """Carries a job to a lane that is not listed."""

    def _move(self, row: Job, move: Move) -> None:
        if move.to is None:
            super()._move(row, move)
        else:
            listed = dict(self._listed.get((move.to.queue, move.to.shard), {}))
            super()._move(row, move)
            self._listed[move.to.queue, move.to.shard] = listed


class SweepsTheLiving(MemoryStore):
    """Unlists every lane of the closed buckets."""

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        closed = self._marks.get((queue, shard), Marks(-1, -1)).closed
        listed = self._listed.setdefault((queue, shard), {})
        for pointer in [pointer for pointer in listed if pointer.listing <= closed]:
            del listed[pointer]
        return super().sweep(queue, shard, now_us=now_us, width_us=width_us)


class SweepsTheFuture(MemoryStore):
    """Takes a lane without due jobs for empty."""

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        self.is_sweeping = True
        marks = super().sweep(queue, shard, now_us=now_us, width_us=width_us)
        self.is_sweeping = False
        return marks

    is_sweeping = False

    def _list(self, lane: Lane, listing: int) -> None:
        if not self.is_sweeping:
            super()._list(lane, listing)


class SweepsNothing(MemoryStore):
    """Leaves empty lanes listed."""

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        listed = dict(self._listed.get((queue, shard), {}))
        marks = super().sweep(queue, shard, now_us=now_us, width_us=width_us)
        self._listed[queue, shard] = listed
        return marks


class MarksGoBack(MemoryStore):
    """Sets the marks by the caller's clock, wherever they were."""

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        super().sweep(queue, shard, now_us=now_us, width_us=width_us)
        marks = Marks(-1, bucket_of(now_us, width_us) - 1)
        self._marks[queue, shard] = marks
        return marks


class SharesOneList(MemoryStore):
    """Lists every shard's lanes with every other's."""

    def _list(self, lane: Lane, listing: int) -> None:
        super()._list(lane, listing)
        for shard in (0, 1, 2):
            table = self._listed.setdefault((lane.queue, shard), {})
            table[Pointer(listing, lane)] = True


class ExpectsNothing(MemoryStore):
    """Commits whatever is expected."""

    def _commit(self, partition: str, writes: Sequence[Write]) -> bool:
        return super()._commit(partition, [write._replace(expect=None) for write in writes])


class CommitsInPart(MemoryStore):
    """Commits each write by itself."""

    def _commit(self, partition: str, writes: Sequence[Write]) -> bool:
        return all(super(CommitsInPart, self)._commit(partition, [write]) for write in writes)


class NothingExpires(MemoryStore):
    """Keeps records for ever."""

    def _live(self, partition: str, key: str) -> Put | None:
        return self._records.get(partition, {}).get(key)


class FullPagesOnly(MemoryStore):
    """Counts expired records against the limit, so that a page falls short in the middle."""

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        keys = sorted(key for key in self._records.get(partition, {}) if key > (after or ""))
        page = set(keys[:limit])
        read = super().read(partition, after=after, limit=limit)
        return [record for record in read if record.key in page]


class GroupsInPart(MemoryStore):
    """Leaves behind what a group did before a condition failed."""

    def _take_back(self, start: int) -> None:
        del self._undo[start:]


class GroupsMixed(MemoryStore):
    """Adds the jobs of all groups after the verdicts of all."""

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        held = super().together([group._replace(jobs=()) for group in groups])
        for group, holds in zip(groups, held, strict=True):
            if holds:
                self.add(group.jobs)
        return held


class GroupsDepend(MemoryStore):
    """Stops at the first group that fails."""

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        held: list[bool] = []
        for group in groups:
            held.append(all(held) and super().together([group])[0])
        return held


class TwoHolders(MemoryStore):
    """Reads and writes a claim's rows without holding the lock in between."""

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        claimed = super().claim(wants, limit=limit, lease=lease)
        if len(claimed.jobs) > 1:  # what another thread would have taken too
            self._put(claimed.jobs[0]._replace(at_us=lease.now_us, state=State.WAITING))
        return claimed


class TellsOfOnePage(MemoryStore):
    """Goes through the lanes that hold rows up to the end of a page."""

    def lanes_with_rows(self, *, after: str | None, limit: int) -> LanesWithRows:
        return super().lanes_with_rows(after=after, limit=limit)._replace(after=None)


class TellsOfEmptyLanes(MemoryStore):
    """Tells of lanes that held rows once, too."""

    def lanes_with_rows(self, *, after: str | None, limit: int) -> LanesWithRows:
        page = super().lanes_with_rows(after=after, limit=limit)
        empty = [lane for lane, rows in self._rows.items() if not rows]
        return page._replace(lanes=[*page.lanes, *empty][:limit])
