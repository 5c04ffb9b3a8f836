"""Paced redrives: dead-letter jobs are retried at a rate, by a run that can be stopped and resumed.

A redrive is a bulk run (`dueline.admin.bulk_runs`), which retries each job once however often it is
interrupted, and a record of its rate and progress. The process that runs it writes this record
about once a second on the version that it wrote before. So an operator stops it from anywhere: by
writing the record.
"""

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from dueline.admin.bulk_runs import BulkRun
from dueline.admin.search import JobFilter
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import encode
from dueline.core.durations import instant_text, parse_span, span_text
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, NotFound
from dueline.core.process_identity import Whereabouts, is_gone, own
from dueline.core.readable_records import readable, value_at
from dueline.core.store import Put
from dueline.jobs.bulk import PAGE, BulkResult, retry_all
from dueline.jobs.queue import Queues

PARTITION: Final = "redrives"
KEEP_US: Final = 7 * DAY_US
NOTE_EVERY_US: Final = SECOND_US
STALE_US: Final = 15 * SECOND_US
"""A run that has not written its progress for this time has no process any more."""

_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/([a-z0-9.]+))?")

State = Literal["running", "stopped", "done"]


@dataclass(frozen=True, slots=True)
class Redrive:
    """The stored progress of a paced redrive.

    Attributes:
      id: Derived from the filter: a filter has one redrive at a time.
      like: Which dead-letter jobs.
      written: The filter, in words.
      rate: Jobs per second.
      who: The operator who started or resumed it.
      process: The process that runs it.
      began_us: When it was started or resumed; beat_us: when its progress was last written.
      matching: Number of jobs when it was started or resumed, with those that were done.
      done: Number of jobs that it has retried.
    """

    id: str
    like: JobFilter
    written: str
    rate: float
    who: str
    process: Whereabouts
    began_us: int
    beat_us: int
    matching: int
    done: int = 0
    state: State = "running"

    def is_live(self, now_us: int) -> bool:
        """Return whether a process runs it, as far as is known here."""
        is_fresh = self.state == "running" and now_us - self.beat_us < STALE_US
        return is_fresh and not is_gone(self.process, own())

    def conflict(self, now_us: int) -> Conflict:
        """Return the error of a process that cannot run it yet."""
        ago = span_text(max(0, now_us - self.beat_us), units=1)
        return Conflict(
            f"The redrive {self.id[:8]} of {self.who} runs already, or its process was killed: it"
            f" wrote its progress {ago} ago.",
            hint=f"Stop it with `dueline dead redrive --stop --id {self.id[:8]}`, or resume it"
            f" after {instant_text(self.beat_us + STALE_US)} if it was killed.",
        )

    def is_resumable(self, now_us: int) -> bool:
        """Return whether it was stopped, or its process died."""
        return self.state != "done" and not self.is_live(now_us)


def read_rate(text: str) -> float:
    """Return the jobs per second of a rate such as 50, 50/s or 600/5m.

    Raises:
      BadInput: It is not a rate.
    """
    match = _RATE.fullmatch(text)
    per = (match and match[2]) or "s"
    per_us = parse_span(per if per[0].isdecimal() else f"1{per}")
    if match is None or not float(match[1]) or per_us <= 0:
        raise BadInput(f"{text!r:.80} is not a rate.", hint="Use 50/s, 10/m or 600/5m.")
    return float(match[1]) * SECOND_US / per_us


def redrives(engine: Engine) -> Sequence[Redrive]:
    """Return the redrives of the last days, the latest first."""
    runs = [run for _, run in readable(engine.store, PARTITION, Redrive)]
    return sorted(runs, key=lambda run: -run.began_us)


def chosen(engine: Engine, redrive: str | None, *, to_resume: bool) -> Redrive:
    """Return a redrive to stop or resume, by the first letters of its id; None for the only one.

    Raises:
      NotFound: No redrive matches.
      Conflict: The one to resume runs already, as far as is known here.
      BadInput: There are several.
    """
    now_us = engine.time.latest_us()
    matches = [
        run
        for run in redrives(engine)
        if run.id.startswith(redrive or "")
        and (run.is_resumable(now_us) if to_resume else run.state == "running")
    ]
    if not matches:
        for run in redrives(engine) if to_resume else ():
            if run.id.startswith(redrive or "") and run.state == "running":
                raise run.conflict(now_us)
        what = "can be resumed" if to_resume else "is running"
        raise NotFound(f"No such redrive {what}.", hint="See `dueline dead redrives`.")
    if len(matches) > 1:
        raise BadInput(f"There are {len(matches)} redrives.", hint="Name one: --id ID.")
    return matches[0]


def stop(engine: Engine, redrive: str) -> Redrive:
    """Stop a redrive: its process ends after the jobs in progress, about a second later.

    Raises:
      NotFound: There is no such redrive.
      Conflict: Its process keeps writing; repeat this.
    """
    for _ in range(5):
        run, version = value_at(engine.store, PARTITION, redrive, Redrive)
        if run is None:
            raise NotFound(
                f"There is no redrive {redrive:.40}.", hint="See `dueline dead redrives`."
            )
        if run.state != "running":
            return run
        stopped = replace(run, state="stopped")
        if _put(engine, stopped, version):
            return stopped
    raise Conflict("The redrive keeps changing.", hint="Try again.")


class PacedRedrive:
    """One redrive, run by this process.

    Args:
      queues: The queues of the store.
      like: Which dead-letter jobs.
      written: The filter, in words.
      rate: Jobs per second.
      who: The operator.
      count_max: Maximum number of jobs that are counted before; None for all.
    """

    def __init__(
        self,
        queues: Queues,
        like: JobFilter,
        written: str,
        rate: float,
        who: str,
        *,
        count_max: int | None = None,
    ) -> None:
        self._queues = queues
        self._engine = engine = queues.engine
        self.bulk = BulkRun(engine, replace(like, state="dead"), "redrive")
        now_us = engine.time.latest_us()
        known, self._version = value_at(engine.store, PARTITION, self.bulk.key, Redrive)
        if known is not None and known.is_live(now_us):
            raise known.conflict(now_us)
        done = known.done if known is not None and self.bulk.is_begun else 0
        self.matching = self.bulk.count(count_max)
        self.redrive = Redrive(
            self.bulk.key, like, written, rate, who, own(), now_us, now_us,
            self.matching + done, done,
        )  # fmt: skip

    def begin(self) -> None:
        """Store that it runs; `run` comes next.

        Raises:
          Conflict: Another process has begun it.
        """
        self._note(self.redrive)

    def run(self) -> Generator[BulkResult]:
        """Retry the jobs at the rate; yield what became of each few of them.

        It ends when all are retried, or when an operator has stopped it: `redrive` says which.

        Raises:
          Conflict: Another process runs the same redrive.
        """
        engine, rate = self._engine, self.redrive.rate
        clock = engine.clock
        began_us = noted_us = clock.monotonic_us()
        size = max(1, min(PAGE, round(rate / 2)))
        passed = 0
        try:
            for page in self.bulk.run(partial(retry_all, self._queues), size=size):
                passed += page.done + page.left
                done = self.redrive.done + page.done
                most = max(done, self.redrive.matching)
                self.redrive = replace(self.redrive, done=done, matching=most)
                yield page
                due_us = began_us + round(passed / rate * SECOND_US)
                while True:
                    now_us = clock.monotonic_us()
                    if now_us - noted_us >= NOTE_EVERY_US:
                        noted_us = now_us
                        if not self._note(self.redrive):
                            return
                    if now_us >= due_us:
                        break
                    clock.sleep(min(due_us - now_us, NOTE_EVERY_US) / SECOND_US)
            self._note(replace(self.redrive, state="done"))
        except (GeneratorExit, KeyboardInterrupt):
            self._note(replace(self.redrive, state="stopped"))
            raise

    def _note(self, redrive: Redrive) -> bool:
        """Write the progress; return False if an operator has stopped the redrive."""
        engine = self._engine
        noted = replace(redrive, beat_us=engine.time.latest_us())
        version = _put(engine, noted, self._version)
        if version:
            self.redrive, self._version = noted, version
            return True
        present, present_version = value_at(engine.store, PARTITION, redrive.id, Redrive)
        if present is None or present.state == "running":
            raise Conflict("Another process runs the same redrive.", hint="Let it finish.")
        self.redrive = present if present.state == "done" else replace(noted, state="stopped")
        if self.redrive is not present:
            _put(engine, self.redrive, present_version)
        return False


def _put(engine: Engine, redrive: Redrive, expect: bytes) -> bytes:
    """Write a redrive if it is unchanged; return its version, empty if it is not."""
    version = engine.ids.token()
    put = Put(redrive.id, version, encode(redrive), expect, redrive.beat_us + KEEP_US)
    return version if engine.store.commit(PARTITION, (put,)) else b""
