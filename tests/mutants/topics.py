"""Rules of topics, broken."""

import os
from collections.abc import Callable, Sequence

import pytest

from dueline.api import deliveries
from dueline.api.topics import TopicMethods
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.store import Commit, Store
from dueline.jobs.decisions import Decision
from dueline.streams import consumer, topics
from dueline.streams.batch import Batch
from dueline.streams.dead_letters import Note

Patch = pytest.MonkeyPatch


def publishers_register_nobody(patch: Patch) -> None:
    patch.setattr(TopicMethods, "_register_subscribers", lambda _self, _tx: None)


def subscribers_read_all_topics(patch: Patch) -> None:
    patch.setattr(topics, "matches", lambda _pattern, topic: topic is not None)


def a_repeat_plans_anew(patch: Patch) -> None:
    make = deliveries.jobs_of

    def make_anew(engine: Engine, batch: Batch, group: str, new: Callable[..., Job]) -> list[Job]:
        kept, batch.hold.note = batch.hold.note, Note()
        jobs = make(engine, batch, group, new)
        batch.hold.note = kept
        return jobs

    patch.setattr(deliveries, "jobs_of", make_anew)


def a_copy_is_another_row(patch: Patch) -> None:
    patch.setattr(deliveries, "as_inserted", lambda row: row._replace(pos_us=row.pos_us + 1))


def ids_are_random(patch: Patch) -> None:
    patch.setattr(topics, "job_id_of", lambda _group, _event: os.urandom(16))


def the_position_moves_first(patch: Patch) -> None:
    def decide(store: Store, decisions: Sequence[Decision]) -> list[bool]:
        for decision in decisions:
            commit = decision.commit()
            if not store.commit(commit.partition, commit.writes):
                return [False]
            store.add(decision.carried.jobs)
        return [True]

    patch.setattr(consumer, "decide", decide)


def jobs_are_inserted_before_they_are_planned(patch: Patch) -> None:
    def decide(store: Store, decisions: Sequence[Decision]) -> list[bool]:
        held = []
        for decision in decisions:
            store.add(decision.carried.jobs)
            commit: Commit = decision.commit()
            held.append(store.commit(commit.partition, commit.writes))
        return held

    patch.setattr(consumer, "decide", decide)
