"""Rules of durable functions, broken."""

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from dueline.core.attempt import Failed
from dueline.core.job import Job
from dueline.core.store import Put
from dueline.durable import ends, signals, waits
from dueline.durable.activation import Activation
from dueline.durable.driving import Blocking, Call, Part
from dueline.durable.log import Entry, Head, Log
from dueline.jobs import called_jobs, group_cancellation, parked_functions

Patch = pytest.MonkeyPatch


def a_step_is_not_recorded(patch: Patch) -> None:
    write = Log.write

    def write_others(
        self: Log, key: str, head: Head, value: bytes = b"", *, jobs: Sequence[Job] = ()
    ) -> Call[Entry]:
        if head.kind == "step" and head.state == "done":
            return Entry(head, value)
        return (yield from write(self, key, head, value, jobs=jobs))

    patch.setattr(Log, "write", write_others)


def a_record_is_written_whoever_has_opened_the_log(patch: Patch) -> None:
    def put(self: Log, key: str, entry: Entry, **_: object) -> Call[None]:
        self.expect_listed()
        writes = [Put(key, self._engine.ids.token(), entry.to_bytes(), expect=None)]
        yield Blocking(lambda: self._engine.store.commit(self._partition, writes))
        self._note(key, entry)

    patch.setattr(Log, "_put", put)
    patch.setattr(Log, "_has_opened", lambda *_: True)


def the_end_is_not_recorded(patch: Patch) -> None:
    def end(run: Activation, state: str, why: Failed) -> Generator[Part, Any, Entry]:
        shown = [why.error_type, why.message, why.traceback]
        stored = run.handler.write_value(shown, run.job.task)
        return Entry(Head("end", state=state, codec=stored.codec), stored.data)
        yield

    patch.setattr(ends, "_write_end", end)


def a_recorded_end_is_not_followed(patch: Patch) -> None:
    begin = ends.begin

    def begin_anew(run: Activation) -> Generator[Part, Any, None]:
        yield from begin(run)
        run.end = None

    patch.setattr(ends, "begin", begin_anew)


def a_signal_is_free_though_it_is_marked(patch: Patch) -> None:
    patch.setattr(signals, "is_free", lambda *_: True)


def an_unknown_step_is_not_interrupted(patch: Patch) -> None:
    """Give a value whose record has no response."""
    write = Activation.write

    def write_anyhow(
        self: Activation, key: str, head: Head, value: bytes = b"", *, jobs: Sequence[Job] = ()
    ) -> Generator[Part, Any, Entry]:
        try:
            return (yield from write(self, key, head, value, jobs=jobs))
        except BaseException:
            if head.kind != "step":
                raise
            self.suspension = None
            return Entry(head, value)

    patch.setattr(Activation, "write", write_anyhow)


def a_replay_runs_its_steps_again(patch: Patch) -> None:
    replayed = Activation.replayed

    def replay(self: Activation, key: str, kind: str, name: str) -> Generator[Part, Any, Any]:
        entry = yield from replayed(self, key, kind, name)
        return None if kind == "step" and self.end is None else entry

    patch.setattr(Activation, "replayed", replay)


def a_compensation_that_is_recorded_runs_again(patch: Patch) -> None:
    whole = ends.conclude

    def conclude(run: Activation) -> Generator[Part, Any, Any]:
        for key in [key for key in run.log.entries if key.startswith("undo/")]:
            del run.log._entries[key]
        return (yield from whole(run))

    patch.setattr(ends, "conclude", conclude)


def nobody_is_woken(patch: Patch) -> None:
    patch.setattr(signals, "wake", lambda _engine, _job_id: True)
    patch.setattr(parked_functions, "is_parked", lambda _row: False)
    patch.setattr(waits, "CHECK_US_MIN", waits.CHECK_US_MAX)


def no_caller_is_woken(patch: Patch) -> None:
    patch.setattr(group_cancellation, "wake_parents", lambda *_: 0)
    patch.setattr(waits, "CHECK_US_MIN", waits.CHECK_US_MAX)


def the_end_of_a_called_job_is_not_written_for_its_caller(patch: Patch) -> None:
    patch.setattr(called_jobs, "record", lambda *_: [])


def a_recorded_call_is_not_inserted_again(patch: Patch) -> None:
    patch.setattr(Log, "insert_again", lambda *_: None)
