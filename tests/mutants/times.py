"""Rules of schedules, broken."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from dueline.core.clock import DAY_US
from dueline.core.engine import Engine
from dueline.core.job import JobId
from dueline.core.store import Verdict
from dueline.jobs import completion, decisions
from dueline.jobs.decisions import Decision
from dueline.jobs.queue import Queues
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Schedule, Step, Stored
from dueline.schedules.timetable import Timetable
from tests.harness.stepped_store import SteppedMemoryStore

Patch = pytest.MonkeyPatch


def a_time_has_another_job_each_try(patch: Patch) -> None:
    named, numbers = definition.job_id, count()

    def unlike(schedule: Schedule, nominal_us: int) -> JobId:
        return named(schedule, nominal_us + next(numbers))

    patch.setattr(definition, "job_id", unlike)


def jobs_before_how_far_they_come(patch: Patch) -> None:
    def store(engine: Engine, found: Stored, step: Step, now_us: int) -> list[int]:
        planned = [scheduler._planned(engine, found.schedule, us, now_us) for us in step.times_us]
        engine.recording_store.add([scheduler._job(found.schedule, one, now_us) for one in planned])
        put = scheduler._put(engine, found.name, step.schedule, found)
        return [0] * len(planned) if scheduler._commit(engine, put) else []

    patch.setattr(scheduler, "_store", store)


def jobs_behind_how_far_they_come(patch: Patch) -> None:
    def store(engine: Engine, found: Stored, step: Step, now_us: int) -> list[int]:
        put = scheduler._put(engine, found.name, step.schedule, found)
        if not scheduler._commit(engine, put):
            return []
        planned = [scheduler._planned(engine, found.schedule, us, now_us) for us in step.times_us]
        engine.recording_store.add([scheduler._job(found.schedule, one, now_us) for one in planned])
        return [0] * len(planned)

    patch.setattr(scheduler, "_store", store)


def births_are_sent_again_for_ever(patch: Patch) -> None:
    patch.setattr(decisions, "RESEND_US_MAX", 1000 * DAY_US)


def what_is_to_be_withdrawn_is_not_written_down(patch: Patch) -> None:
    def at_once(queues: Queues, schedule: Schedule, now_us: int) -> dict[bytes, int]:
        for us in definition.times_after(schedule.timing, now_us):
            if us > schedule.through_us:
                break
            queues.cancel(definition.job_id(schedule, us))
        return {}

    put = scheduler._change

    def change(queues: Queues, name, now_us, how):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        patch.setattr(definition, "withdrawn", lambda *terms: at_once(queues, *terms))
        return put(queues, name, now_us, how)

    patch.setattr(scheduler, "_change", change)


def a_decision_is_not_bound_to_its_record(patch: Patch) -> None:
    decision = scheduler._decision

    def over_anything(engine: Engine, found: Stored, sending: Schedule, version: bytes) -> Decision:
        present = definition.stored(engine.store, found.name)
        return decision(engine, present or found, sending, version)

    patch.setattr(scheduler, "_decision", over_anything)


def a_time_is_decided_before_it_has_come(patch: Patch) -> None:
    alone = definition._alone

    def early(overlap, times, now_us, *, is_free):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return alone(overlap, times, now_us + definition.AHEAD_US, is_free=is_free)

    patch.setattr(definition, "_alone", early)


def the_job_before_is_looked_for_once(patch: Patch) -> None:
    def lives(engine: Engine, job_id: bytes) -> bool:
        return engine.store.find([JobId(job_id)]) != [None]

    patch.setattr(scheduler, "_lives", lives)


def who_asks_for_an_end_forgets_it_first(patch: Patch) -> None:
    def recall(queues: Queues, found: Stored) -> None:
        done = replace(found.schedule, recalled=(), ended=b"")
        if scheduler._commit(queues.engine, scheduler._put(queues.engine, found.name, done, found)):
            queues.cancel(JobId(found.schedule.ended))

    patch.setattr(scheduler, "_recall", recall)


def no_worker_advances_what_the_monitor_left(patch: Patch) -> None:
    patch.setattr(Timetable, "_overdue_us", lambda *_: None)


def the_next_one_comes_beside_the_one_it_replaces(patch: Patch) -> None:
    alone = definition._alone

    def at_once(overlap, times, now_us, *, is_free):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return alone(overlap, times, now_us, is_free=is_free or overlap == "replace")

    patch.setattr(definition, "_alone", at_once)


def what_a_worker_has_counts_as_not_there(patch: Patch) -> None:
    after = definition.after_recall
    patch.setattr(definition, "after_recall", lambda schedule, _, last: after(schedule, {}, last))


def cancelled_rows_go_before_the_schedule_says_so(patch: Patch) -> None:
    settle = SteppedMemoryStore.settle

    def at_once(self: SteppedMemoryStore, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        held = settle(self, verdicts)
        rows = [row for row in self.find([one.job.id for one in verdicts]) if row and row.outcome]
        completion.complete(self, list(map(completion.stored, rows)))
        return held

    patch.setattr(SteppedMemoryStore, "settle", at_once)
