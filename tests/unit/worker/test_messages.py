"""What a worker and its child processes say to each other."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.core.attempt import (
    Cancelled,
    Crashed,
    Done,
    Each,
    Ended,
    Ending,
    Failed,
    GivenBack,
    Settled,
    Snoozed,
)
from dueline.core.job import Claim, Job, JobId, State, Token
from dueline.core.lane import Lane
from dueline.tasks.chunks import Emitted
from dueline.tasks.progress import Progress, ProgressReport
from dueline.worker.assignment import Assignment
from dueline.worker.child_protocol import (
    CancelAsked,
    Emission,
    Extended,
    Finished,
    Leave,
    Lost,
    Message,
    Progressed,
    Ready,
    Recall,
    Returned,
    Run,
    Started,
    Written,
    dump,
    dump_ending,
    load,
    load_ending,
    to_ended,
)
from tests.harness.calls import row_of

INSTANTS = st.integers(0, 2**63 - 1)
TEXT = st.sampled_from(("", "x", "ä\0🙂", "z" * 300))
ids = st.integers(0, 2**128 - 1).map(lambda number: number.to_bytes(16))
claims = st.builds(Claim, ids.map(JobId), st.integers(0, 2**40))
lanes = st.builds(
    Lane, TEXT, st.integers(0, 1023), INSTANTS, st.integers(-(2**31), 2**31 - 1), TEXT
)
jobs = st.builds(
    Job,
    lanes,
    INSTANTS,
    ids.map(JobId),
    st.integers(0, 99),
    INSTANTS,
    INSTANTS,
    TEXT,
    st.integers(0, 9),
    st.sampled_from((b"[]", b'["\xc3\xa4"]')),
    st.sampled_from((b"", b"\xff")),
    INSTANTS,
    fence=st.integers(0, 2**40),
    token=ids.map(Token),
    worker=TEXT,
    claimed_us=INSTANTS,
    errors=st.integers(0, 100),
    crashes=st.integers(0, 9),
    alone=st.booleans(),
    state=st.sampled_from(State),
    outcome=st.sampled_from((b"", b'{"a":1}')),
    error=TEXT,
)
endings = st.one_of(
    st.builds(Done, st.binary()),
    st.builds(
        Failed,
        TEXT,
        TEXT,
        TEXT,
        st.booleans(),
        st.none() | INSTANTS,
        st.integers(0, 9),
        attempts=st.integers(0, 99),
    ),
    st.builds(Snoozed, INSTANTS),
    st.builds(Cancelled, TEXT),
    st.builds(Crashed, TEXT),
    st.builds(GivenBack, INSTANTS),
    st.just(Settled()),
)
endings = endings | st.builds(Each, st.lists(st.tuples(claims, endings), max_size=2))
amounts = st.integers(0, 2**63 - 1) | st.floats(0, 1e9)
spent = st.lists(st.tuples(TEXT, st.integers(0, 2**40)), max_size=2).map(tuple)
reports = st.builds(ProgressReport, amounts, amounts, TEXT, TEXT, spent)
progress = st.builds(Progress, amounts, amounts, TEXT, INSTANTS)
flags = st.booleans()
given_first = st.sampled_from((b"", b"[1]"))
members = st.builds(
    Assignment, jobs, flags, flags, st.none() | progress, flags, given_first, st.just(()),
    st.integers(0, 2**62), st.integers(0, 2**62),
)  # fmt: skip
chunks = st.lists(members, max_size=2).map(tuple)
assignments = members | st.builds(
    Assignment, jobs, flags, flags, st.none(), flags, st.just(b""), chunks,
    st.integers(0, 2**62), st.integers(0, 2**62),
)  # fmt: skip
messages = st.one_of(
    st.builds(
        Run,
        st.integers(-(2**62), 2**62),
        st.integers(0, 2**62),
        st.lists(assignments, max_size=3),
        st.lists(st.integers(0, 2**20), max_size=3),
    ),
    st.builds(Written, st.lists(st.integers(0, 2**20), max_size=3)),
    st.builds(Lost, st.lists(claims, max_size=3)),
    st.builds(CancelAsked, st.lists(claims, max_size=3)),
    st.builds(Progressed, claims, reports),
    st.just(Recall()),
    st.just(Leave()),
    st.just(Ready()),
    st.builds(Returned, st.lists(claims, max_size=3)),
    st.builds(Started, claims, INSTANTS),
    st.builds(Finished, claims, endings, INSTANTS, INSTANTS),
)


@given(messages)
def test_every_message_arrives_as_it_was_sent(message: Message) -> None:
    arrived = load(dump(message))
    assert type(arrived) is type(message)
    assert arrived == message


@given(endings)
def test_every_ending_arrives_as_its_kind(ending: Ending) -> None:
    arrived = load(dump(Finished(Claim(JobId(bytes(16)), 1), ending, 2, 3)))
    assert isinstance(arrived, Finished)
    assert type(arrived.ending) is type(ending)


@given(endings)
def test_every_ending_arrives_by_the_board(ending: Ending) -> None:
    arrived = load_ending(dump_ending(ending, 2, 3), row_of(3))
    assert arrived == Ended(row_of(3), ending, 2, 3)
    assert type(arrived.ending) is type(ending)


@given(st.lists(jobs, min_size=1, max_size=2))
def test_rows_arrive_with_their_lanes_and_claims(rows: list[Job]) -> None:
    arrived = load(dump(Run(5, 7, [Assignment(row, keep=True) for row in rows], [])))
    assert isinstance(arrived, Run)
    for assignment, row in zip(arrived.assignments, rows, strict=True):
        assert isinstance(assignment, Assignment)
        assert isinstance(assignment.job, Job)
        assert isinstance(assignment.job.lane, Lane)
        assert assignment.job.claim() == row.claim()


def test_no_kind_of_message_or_ending_is_left_out() -> None:
    made = {type(each) for each in EXAMPLES}
    assert made == set(get_args(Message))


EXAMPLES: list[Message] = [
    Run(1, 2, [], []),
    Extended({Claim(JobId(bytes(16)), 1): 5}),
    Lost([]),
    CancelAsked([]),
    Recall(),
    Leave(),
    Ready(),
    Returned([]),
    Started(Claim(JobId(bytes(16)), 1), 2),
    Progressed(Claim(JobId(bytes(16)), 1), ProgressReport(0, 0, "")),
    Emission([Emitted(Claim(JobId(bytes(16)), 1), 1, 2, '"x"')]),
    Finished(Claim(JobId(bytes(16)), 1), Done(b""), 2, 3),
    Finished(Claim(JobId(bytes(16)), 1), Settled(), 2, 3),
    Written([]),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda each: type(each).__name__)
def test_the_emptiest_of_each_kind_arrives(message: Message) -> None:
    assert load(dump(message)) == message


def test_what_the_child_said_is_joined_with_the_row_that_the_parent_kept() -> None:
    job = row_of(3)
    message = Finished(job.claim(), Snoozed(9), 5, 7)
    assert to_ended(message, job) == Ended(job, Snoozed(9), 5, 7)
