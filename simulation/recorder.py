"""A store that records its calls."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from checker.journal import Event
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import UNCLAIMED_TOKEN, Job
from dueline.core.lane import DEAD_SUFFIX, Lane, Marks, Pointer
from dueline.core.store import (
    Claimed,
    Drop,
    Extend,
    Group,
    LanePage,
    Lease,
    Move,
    Store,
    Verdict,
    Want,
)
from dueline.core.store_capabilities import PrefetchResult, SupportsPrefetch

Answer = TypeVar("Answer")


class Writer(Protocol):
    """The event file of a process."""

    def write(self, *events: Event) -> None:
        """Append events with one write."""
        ...


class RecordingStore:
    """Passes calls on to a store; writes events before what may change a job, and after.

    What the checker needs no trace of, if its process dies, is written afterwards only.
    """

    def __init__(
        self, store: Store, diary: Writer, event: Callable[..., Event], note: Callable[[Job], str]
    ) -> None:
        """Take the store, the diary, what makes this process's events, and what to note of a job.

        Args: event: called with the names of an Event's fields, but for t and proc.
        """
        self._store = store
        self._diary = diary
        self._event = event
        self._note = note
        self._marks: dict[tuple[str, int], Marks] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever else a store has)
        return getattr(self._store, name)

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Pass on; dead rows are not births."""
        return self._recorded(
            self._births(jobs),
            lambda: self._store.add(jobs),
            lambda stored: self._answers_of(jobs, stored),
        )

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Pass on; a claim that brings nothing is not told of."""
        asked = self._event(type="invoke", f="claim", token=lease.token.hex())
        claimed = self._store.claim(wants, limit=limit, lease=lease)
        if claimed.jobs:
            self._diary.write(asked, *map(self._claimed, claimed.jobs))
        return claimed

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        """Pass on; as `claim`."""
        if not isinstance(self._store, SupportsPrefetch):
            return PrefetchResult([], {})
        asked = self._event(type="invoke", f="claim", token=lease.token.hex())
        claimed = self._store.prefetch(wants, limit=limit, until_us=until_us, lease=lease)
        if claimed.jobs:
            self._diary.write(asked, *(self._claimed(job) for job, _ in claimed.jobs))
        return claimed

    def _claimed(self, job: Job) -> Event:
        return self._event(
            type="ok",
            f="claim",
            id=job.id.hex(),
            attempt=job.fence,
            token=job.token.hex(),
            at=job.at_us,
            priority=job.lane.priority,
            shard=f"{job.lane.queue}/{job.lane.shard}",
            note="its end is decided" if job.outcome else "",
        )

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Pass on."""
        asked = [self._given(verdict) for verdict in verdicts]
        return self._recorded(
            [event for event in asked if event],
            lambda: self._store.settle(verdicts),
            lambda held: [
                ("unknown" if self._is_presumed(verdict) else "ok") if sure else "no"
                for verdict, event, sure in zip(verdicts, asked, held, strict=True)
                if event
            ],
        )

    def _is_presumed(self, verdict: Verdict) -> bool:
        """Tell whether a verdict is taken to hold since its row has gone, whoever took it."""
        job = verdict.job
        return (job.id, job.token) in getattr(self._store, "presumed", ())

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Pass on."""
        asked = [
            [*filter(None, map(self._given, group.verdicts)), *self._births(group.jobs)]
            for group in groups
        ]
        return self._recorded(
            [event for events in asked for event in events],
            lambda: self._store.together(groups),
            lambda held: [
                "ok" if sure else "no"
                for events, sure in zip(asked, held, strict=True)
                for _ in events
            ],
        )

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Pass on; tell of the marks when they are not those of the last time."""
        asked = self._event(type="invoke", f="mark")
        page = self._store.lanes(queue, shard, until_bucket=until_bucket, after=after, limit=limit)
        if self._marks.get((queue, shard)) != page.marks:
            self._marks[queue, shard] = page.marks
            answered = self._event(type="ok", f="mark")
            for name in ("swept", "closed"):
                told = {"id": f"{name} {queue}/{shard}", "epoch": getattr(page.marks, name)}
                self._diary.write(replace(asked, **told), replace(answered, **told))
        return page

    def _births(self, jobs: Sequence[Job]) -> list[Event]:
        return [
            self._event(
                type="invoke", f="enqueue", id=job.id.hex(), at=job.due_us, note=self._note(job)
            )
            for job in jobs
            if _is_birth(job)
        ]

    def _answers_of(self, jobs: Sequence[Job], stored: Sequence[bool]) -> list[str]:
        return [
            "ok" if sure else "unknown"
            for job, sure in zip(jobs, stored, strict=True)
            if _is_birth(job)
        ]

    def _given(self, verdict: Verdict) -> Event | None:
        """Say what a verdict does; None where it only clears away what has ended."""
        job = verdict.job
        token = "" if job.token == UNCLAIMED_TOKEN else job.token.hex()  # new rows share it
        same = {"id": job.id.hex(), "attempt": job.fence, "token": token}
        match verdict:
            case Extend(_, at_us):
                return self._event(type="invoke", f="extend", at=at_us, **same)
            case Drop():
                if job.outcome:
                    return None
                return self._event(type="invoke", f="settle", **same)
            case Move(outcome=outcome, to=to) if outcome or _is_dead(to):
                return self._event(type="invoke", f="settle", **same)
            case Move(_, at_us, errors=errors, crashes=crashes, to=to):
                note = f"errors {errors}, crashes {crashes}"
                f = "release" if to is None else "carry"
                return self._event(type="invoke", f=f, at=at_us, note=note, **same)

    def _recorded(
        self,
        asked: Sequence[Event],
        call: Callable[[], Answer],
        answers: Callable[[Answer], Sequence[str]],
    ) -> Answer:
        if not asked:
            return call()
        self._diary.write(*asked)
        try:
            answer = call()
        except Unknown:
            self._answer(asked, ["unknown"] * len(asked))
            raise
        except StoreUnavailable:
            self._answer(asked, ["no"] * len(asked))
            raise
        self._answer(asked, answers(answer))
        return answer

    def _answer(self, asked: Sequence[Event], types: Sequence[str]) -> None:
        t_us = self._event(type="ok", f="start").t
        self._diary.write(
            *(
                replace(event, t=t_us, type=type_, note="")  # type: ignore[arg-type]  # one of Event.type
                for event, type_ in zip(asked, types, strict=True)
            )
        )


def _is_birth(job: Job) -> bool:
    return not _is_dead(job.lane)


def _is_dead(lane: Lane | None) -> bool:
    return lane is not None and lane.queue.endswith(DEAD_SUFFIX)
