"""Spark tasks as the child processes of a worker."""

import itertools
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pyspark.sql import SparkSession

from dueline.core.attempt import Ended
from dueline.core.clock import SECOND_US, Clock
from dueline.core.errors import ConfigError
from dueline.spark.worker.driver_server import Gate, Line
from dueline.spark.worker.executor_worker import Work, serving
from dueline.tasks.handler import Handler
from dueline.worker.child_handle import ChildHandle
from dueline.worker.process_runner import FAILED_STARTS_MAX, ProcessRunner, threads_each

IDLE_US: Final = 5 * SECOND_US
"""A member that is idle for this long gives its place back to Spark."""

TURN_US: Final = 60 * SECOND_US
"""A member that has run for this long does too: other Spark jobs may wait for its place."""

END_S: Final = 10.0
"""Maximum duration to wait for the end of a Spark task."""


class Task:
    """A Spark job of one task that runs handlers; `kill` hangs up, which ends it."""

    def __init__(self, spark: SparkSession, number: int, gate: Gate, work: Work) -> None:
        self.pid = number
        self.line = gate.expect(number)
        self._context = spark.sparkContext
        self._tag = f"dueline-{uuid4().hex}"
        self._serve = serving(gate.address, number, work)
        self._thread = threading.Thread(target=self._run, name=f"spark-{number}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        error = "Spark ended it."
        try:
            self._context.addJobTag(self._tag)
            self._context.parallelize([self.pid], 1).foreachPartition(self._serve)
        except Exception as raised:  # noqa: BLE001  (the line ends, whatever Spark raises)
            error = f"{type(raised).__name__}: {raised}".partition("\n")[0]
        finally:
            self.line.give_up(error)

    def kill(self) -> None:
        """Stop its handlers."""
        self.line.hang_up()
        with suppress(Exception):  # Spark may be gone
            self._context.cancelJobsWithTag(self._tag)

    def wait(self) -> int:
        """Return 0: only Spark knows how a task ended, and may repeat it."""
        return 0

    def join(self) -> None:
        """Wait for a while until Spark is done with it."""
        self._thread.join(END_S)


class Member(ChildHandle):
    """A Spark task, as the worker sees it.

    Attributes:
        ready_us: When it became ready.
        busy_us: When it was last seen with jobs.
    """

    process: Task

    def __init__(self, task: Task, handlers: Mapping[str, Handler]) -> None:
        super().__init__(task, task.line, handlers)
        self.ready_us = self.busy_us = 0

    def death(self) -> str:
        """Return how it ended."""
        return "The Spark task that ran it died."


class Counts(NamedTuple):
    """Counts of a fleet; `ended` counts attempts by the kind of outcome."""

    members: int
    waiting: int
    given: int
    ended: Mapping[str, int]


class Fleet(ProcessRunner):
    """Spark tasks that share the worker's slots; none while there are no jobs.

    They behave as child processes: a task that dies ends only the jobs that it was running.
    Spark repeats a task that died; the repetition finds its line taken and does nothing.
    """

    def __init__(
        self,
        spark: SparkSession,
        gate: Gate,
        work: Callable[[int], Work],
        *,
        members: int,
        threads: int,
        clock: Clock,
        now_us: Callable[[], int],
        wakeup: threading.Event,
        handlers: Mapping[str, Handler],
    ) -> None:
        numbers = itertools.count(1)
        sent = work(threads_each(threads, members))
        self._gate = gate
        self._ended_counts: dict[str, int] = {}
        self._why = ""

        def spawn() -> ChildHandle:
            return Member(Task(spark, next(numbers), gate, sent), handlers)

        super().__init__(
            spawn, processes=members, threads=threads, clock=clock, now_us=now_us, wakeup=wakeup
        )

    def spread(self) -> None:
        """Hand out claimed jobs; start tasks as needed.

        Raises:
            ConfigError: No task can load the application.
        """
        if self._failed_starts >= FAILED_STARTS_MAX:
            raise ConfigError(
                f"Spark's tasks end before they load the application. {self._why}".rstrip(),
                hint="Install dueline and the application on the executors, as on the driver.",
            )
        with self._guard:
            self._fill_up()
        super().spread()

    @property
    def capacity(self) -> int:
        """Return the number of jobs that can run at once; tasks are started as jobs come."""
        return self.threads

    def _wanted(self) -> int:
        waiting = len(self._ready) + len(self._alone)
        if not waiting:
            return 0
        given = sum(len(child.given) for child in self._children)
        return min(self._count, -(-(waiting + given) // self._each) + len(self._alone))

    def collect(self) -> list[Ended]:
        """Return the attempts that ended since the last call."""
        ended = super().collect()
        for attempt in ended:
            word = type(attempt.ending).__name__
            self._ended_counts[word] = self._ended_counts.get(word, 0) + 1
        return ended

    def interrupt_overdue(self) -> None:
        """End jobs that run too long; release tasks that are idle or had their turn."""
        super().interrupt_overdue()
        now_us = self._clock.monotonic_us()
        with self._guard:
            for child in self._children:
                assert isinstance(child, Member), "a fleet has only members"
                if child.is_ready and not child.ready_us:
                    child.ready_us = child.busy_us = now_us
                if child.given:
                    child.busy_us = now_us
                is_idle = now_us - child.busy_us > IDLE_US
                if child.is_ready and (is_idle or now_us - child.ready_us > TURN_US):
                    child.is_worn = child.is_leaving = True
                if child.is_leaving:
                    child.ask_to_exit()

    def counts(self) -> Counts:
        """Return the current counts."""
        with self._guard:
            given = sum(len(child.given) for child in self._children)
            members = sum(child.is_ready for child in self._children)
            waiting = len(self._alone) + len(self._ready)
        return Counts(members, waiting, given, dict(self._ended_counts))

    def close(self) -> None:
        """End idle tasks; stop the others."""
        with self._guard:
            for child in self._children:
                child.is_worn = child.is_leaving = True
                if child.is_ready:
                    child.ask_to_exit()
                if not child.is_ready or child.given:
                    child.process.kill()
            self._is_closing = True
            children = list(self._children)
        for child in children:
            assert isinstance(child, Member), "a fleet has only members"
            child.process.join()
        self._gate.close()

    def _on_exit(self, child: ChildHandle) -> None:
        line: Any = child.pipe
        assert isinstance(line, Line), "the pipe of a Spark task"
        self._why = line.error or self._why
        super()._on_exit(child)
