"""Rules of topics, broken."""

import os
from collections.abc import Sequence

import pytest

from dueline.api import deliveries
from dueline.api.deliveries import Deliveries
from dueline.api.topics import TopicMethods
from dueline.core.job import Job
from dueline.core.store import Commit, Store
from dueline.jobs.decisions import Decision
from dueline.streams import consumer, topics
from dueline.streams.batch import Batch

Patch = pytest.MonkeyPatch


def publishers_register_nobody(patch: Patch) -> None:
    patch.setattr(TopicMethods, "_register_subscribers", lambda _self, _tx: None)


def subscribers_read_all_topics(patch: Patch) -> None:
    patch.setattr(topics, "matches", lambda _pattern, topic: topic is not None)


def a_repeat_plans_anew(patch: Patch) -> None:
    make = Deliveries._jobs

    def make_anew(self: Deliveries, subscriber: object, batch: Batch) -> list[Job]:
        kept, batch.hold.note = batch.hold.note, type(batch.hold.note)()
        jobs = make(self, subscriber, batch)  # type: ignore[arg-type]
        batch.hold.note = kept
        return jobs

    patch.setattr(Deliveries, "_jobs", make_anew)


def ids_are_random(patch: Patch) -> None:
    patch.setattr(deliveries, "job_id_of", lambda _group, _event: os.urandom(16))


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
