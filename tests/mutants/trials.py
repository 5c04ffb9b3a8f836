"""Rules of events that kill processes, broken."""

import pytest

from dueline.coordination.leases import Leases
from dueline.streams import consumer
from dueline.streams.batch import HeldShard
from dueline.streams.consumer import Consumer
from dueline.streams.trial import HandlerIsolation, Trial

Patch = pytest.MonkeyPatch


def attempts_are_not_written_down(patch: Patch) -> None:
    patch.setattr(consumer, "begun", lambda before, *_places, **_terms: before)


def what_ended_well_counts_as_a_death(patch: Patch) -> None:
    patch.setattr(Trial, "over", lambda trial: trial)


def whoever_leaves_takes_a_death_back(patch: Patch) -> None:
    end = Consumer._end_attempt

    def end_any(self: Consumer, shard: int, hold: HeldShard) -> None:
        trial = hold.note.trial
        if trial is not None:
            hold.epoch = trial.epoch
        end(self, shard, hold)

    patch.setattr(Consumer, "_end_attempt", end_any)


def whoever_leaves_says_that_all_is_well(patch: Patch) -> None:
    release = Leases.release
    patch.setattr(Leases, "release", lambda self, names, **_: release(self, names))


def suspects_run_beside_others(patch: Patch) -> None:
    patch.setattr(HandlerIsolation, "enter", lambda *_, **__: True)
