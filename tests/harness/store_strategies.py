"""Hypothesis strategies of random operations."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st

from dueline.core.clock import SECOND_US

Item = TypeVar("Item")

PLACES = ((0, 0, ""), (0, 2**31 - 1, "ä"), (1, -(2**31), ""))
SLOTS_US = tuple(seconds * SECOND_US for seconds in (0, 3, 9, 18, 45))
START_US = 20 * SECOND_US
PAST_US, FUTURE_US = 1, 7_258_118_400 * SECOND_US


class Insert(NamedTuple):
    """A new job: indexes into PLACES and SLOTS_US, and the size of its body.

    Slots do not move with the time, so that inserts are early and late, and lanes few.
    """

    place: int
    slot: int
    body_bytes: int


class Decision(NamedTuple):
    """An outcome for a row of the last claim, a present row, or a row read before."""

    kind: str
    source: str
    which: int
    ahead_s: int
    is_started: bool
    to: int | None


class Edit(NamedTuple):
    """A write of a record, with its expectation and expiry."""

    partition: int
    key: str
    is_put: bool
    expect: str
    expires_us: int | None


class Change(NamedTuple):
    """The parts of a group."""

    decisions: Sequence[Decision]
    edits: Sequence[Edit]
    inserts: Sequence[Insert]
    again: Sequence[int]
    rows: Sequence[int]

    def with_one_condition(self) -> "Change":
        """Return it with its first condition only: all or nothing on every store."""
        edits = () if self.decisions else self.edits[:1]
        return self._replace(decisions=self.decisions[:1], edits=edits)


small = st.one_of(st.integers(0, 3), st.integers(0, 30))
inserts = st.builds(
    Insert,
    st.sampled_from((0, 0, 1, 2)),
    st.integers(0, len(SLOTS_US) - 1),
    st.sampled_from((2, 2, 0, 3000)),
)
decisions = st.builds(
    Decision,
    st.sampled_from(("drop", "extend", "extend", "move")),
    st.sampled_from(("claim", "claim", "present", "past")),
    small,
    st.sampled_from((0, 1, 25, 70, -15)),
    st.booleans(),
    st.one_of(st.none(), st.none(), small),
)
edits = st.builds(
    Edit,
    st.integers(0, 1),
    st.sampled_from("abc"),
    st.booleans(),
    st.sampled_from(("anything", "nothing", "present", "old")),
    st.sampled_from((None, None, FUTURE_US, PAST_US)),
)
changes = st.builds(
    Change,
    st.lists(decisions, max_size=2),
    st.lists(edits, max_size=2, unique_by=lambda edit: edit[:2]),
    st.lists(inserts, max_size=2),
    st.lists(small, max_size=1),
    st.lists(small, max_size=2),
)


def pick(items: Sequence[Item], which: int) -> Item:
    """Return one of the items; a small number returns a recent one."""
    return items[-1 - which % len(items)]
