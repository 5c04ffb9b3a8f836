"""Rules of records that decide, broken."""

from collections.abc import Sequence
from contextlib import suppress

import pytest

from dueline.core.clock import DAY_US
from dueline.core.errors import StoreUnavailable
from dueline.core.store import Put, Store
from dueline.jobs import decisions
from dueline.jobs.decisions import Decision
from tests.harness.stepped_store import SteppedMemoryStore
from tests.unit.jobs import test_decisions

Patch = pytest.MonkeyPatch
follow = decisions._follow


def _follow_as(patch: Patch, changed: object) -> None:
    patch.setattr(decisions, "_follow", changed)


def consequences_come_before_the_decision(patch: Patch) -> None:
    decide = decisions.decide

    def hasty(store: SteppedMemoryStore, found: Sequence[Decision], **order: bool) -> list[bool]:
        store.together([decision.carried for decision in found])
        return decide(store, found, **order)

    patch.setattr(test_decisions, "decide", hasty)


def a_record_is_closed_before_the_rest_is_stored(patch: Patch) -> None:
    def close_first(store: Store, made: Sequence[Decision]) -> list[bool]:
        closed = [decisions._close(store, decision) for decision in made]
        follow(store, [decision._replace(closed=None) for decision in made])
        return closed

    _follow_as(patch, close_first)


def any_version_of_a_record_is_closed(patch: Patch) -> None:
    def close(store: Store, decision: Decision) -> bool:
        closed = decision.closed
        return not isinstance(closed, Put) or store.commit(decision.commit().partition, [closed])

    patch.setattr(decisions, "_close", close)


def an_insert_is_repeated_for_ever(patch: Patch) -> None:
    patch.setattr(decisions, "RESEND_US_MAX", 1000 * DAY_US)


def decided_counts_as_stored(patch: Patch) -> None:
    def follow_if_it_can(store: Store, made: Sequence[Decision]) -> list[bool]:
        with suppress(StoreUnavailable):
            follow(store, made)
        return [True] * len(made)

    _follow_as(patch, follow_if_it_can)
