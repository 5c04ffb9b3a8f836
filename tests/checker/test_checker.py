"""The checker, on hand-made histories."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from checker import EARLY_US_MAX, Report, check
from checker.journal import Event, events_of, line_of
from dueline.core.errors import StoreCorrupt
from tests.harness.checked_events import (
    ACK,
    AGAIN,
    AGAIN_END,
    ASK,
    BORN,
    CLAIM,
    DONE,
    END,
    GOOD,
    LATER,
    RELEASE,
    RUN,
    START,
    S,
    claim,
    start,
    verdict,
)


def no(f: str, attempt: int, t: int, proc: str = "w1") -> Event:
    """Make the answer of a verdict that was refused."""
    return replace(verdict(f, attempt, t, proc)[1], type="no")


def mark(t: int, epoch: int, proc: str = "m1", type_: str = "ok") -> Event:
    return Event(t, proc, type_, "mark", "closed", epoch=epoch)  # type: ignore[arg-type]  # one of Event.type


def crash(t: int, proc: str = "w1") -> Event:
    return Event(t, proc, "ok", "crash")


EXPIRED = [*RUN, LATER, AGAIN, *AGAIN_END]
SOONER, SOON = claim(2, 3 * S, "w2"), start(2, 3 * S + 100, "w2")
NO_LEASE = replace(CLAIM, at=0)


def poll(*priorities: int, name: str = "poll", shard: str = "q/0") -> list[Event]:
    """Make a poll that brought jobs of these priorities in this order."""
    events = []
    for number, priority in enumerate(priorities):
        one = Event(1, "w", "ok", "claim", f"{name}{shard}{number}", 1, name)
        events.append(replace(one, priority=priority, shard=shard))
    return events


def found(
    history: Sequence[Event], final: dict[str, str] | None = None, **terms: int
) -> list[tuple[str, str]]:
    report: Report = check(history, DONE if final is None else final, **terms)
    return [(finding.verdict, finding.id) for finding in report.findings]


def section(attempt: int, *types: str) -> list[Event]:
    """Make the events of a section of a claim."""
    return [Event(2 * S + 50 + attempt, "w1", one, "section", "a", attempt) for one in types]  # type: ignore[arg-type]  # one of Event.type


BAD: dict[str, tuple[str, list[Event], dict[str, str]]] = {
    "an acknowledged job that is gone": ("lost", BORN, {"a": "gone"}),
    "an acknowledged job of which nobody knows anything": ("lost", BORN, {}),
    "an acknowledged job that still waits": ("lost", RUN, {"a": "ready"}),
    "an acknowledged job that ran, and whose end is unknown": ("lost", [*RUN, END[0]], {}),
    "an acknowledged job that was not kept though it ended": ("lost", GOOD, {"a": "gone"}),
    "a job that nobody enqueued": ("unexpected", [CLAIM, START, *END], DONE),
    "a job whose enqueue was refused": (
        "unexpected", [ASK, replace(ACK, type="no"), CLAIM, START, *END], DONE,
    ),
    "a second start under one claim": ("illegitimate", [*RUN, start(1, 2 * S + 200), *END], DONE),
    "a second start under one claim in another process": (
        "illegitimate", [*RUN, start(1, 2 * S + 200, "w2"), crash(2 * S + 150), *END], DONE,
    ),
    "a start before the lease of the one before ended": (
        "illegitimate", [*RUN, SOONER, SOON, *AGAIN_END], DONE,
    ),
    "a start well before the lease of the one before ended": (
        "illegitimate",
        [*BORN, replace(CLAIM, at=LATER.t + EARLY_US_MAX + 1), START, LATER, AGAIN, *AGAIN_END],
        DONE,
    ),
    "a start before the lease ended that was extended": (
        "illegitimate",
        [*EXPIRED, *verdict("extend", 1, 3 * S, at=9 * S)],
        DONE,
    ),
    "a start after an extension of another claim's lease only": (
        "illegitimate",
        [*RUN, SOONER, SOON, *verdict("extend", 2, 4 * S, "w2", at=9 * S), *AGAIN_END],
        DONE,
    ),
    "a start after a process died that held another claim": (
        "illegitimate", [*RUN, SOONER, SOON, *AGAIN_END, crash(2 * S + 200, "w3")], DONE,
    ),
    "a start after its holder had died before it claimed": (
        "illegitimate", [*RUN, SOONER, SOON, *AGAIN_END, crash(1 * S)], DONE,
    ),
    "a start after which its holder died": (
        "illegitimate", [*RUN, SOONER, SOON, *AGAIN_END, crash(4 * S)], DONE,
    ),
    "a start after a release that was refused": (
        "illegitimate",
        [*RUN, RELEASE[0], SOONER, replace(RELEASE[1], t=3 * S + 50, type="no"), SOON, *AGAIN_END],
        DONE,
    ),
    "a start before the release that might explain it": (
        "illegitimate",
        [*RUN, SOONER, SOON, *AGAIN_END, replace(RELEASE[0], t=4 * S, type="unknown")],
        DONE,
    ),
    "a start after which nothing is known of a lease": (
        "illegitimate", [*BORN, NO_LEASE, START, LATER, AGAIN, *AGAIN_END], DONE,
    ),
    "a start after a death in a section": ("repeated", [*EXPIRED, *section(1, "invoke")], DONE),
    "a section after one that ended": (
        "repeated", [*EXPIRED, *section(1, "invoke", "ok"), *section(2, "invoke")], DONE,
    ),
    "a second repeat without a reason of its own": (
        "illegitimate",
        [*EXPIRED[:-2], claim(3, 6 * S), start(3, 6 * S + 1), *verdict("settle", 3, 7 * S)],
        DONE,
    ),
    "a start after the end": ("illegitimate", [*GOOD, LATER, AGAIN], DONE),
    "a start after the end in a history without claims": (
        "illegitimate", [*BORN, START, *END, crash(2 * S + 200), AGAIN], DONE,
    ),
    "an end by a claim that another had followed": (
        "stale", [*RUN, LATER, AGAIN, *verdict("settle", 1, 6 * S)], DONE,
    ),
    "an end by a claim after which another was started meanwhile": (
        "stale", [*RUN, LATER, AGAIN, replace(END[0], t=5 * S), replace(END[1], t=6 * S)], DONE,
    ),
    "an end by a claim that another had followed, and that starts only then": (
        "stale", [*RUN, LATER, *verdict("settle", 1, 6 * S), start(2, 7 * S, "w2")], DONE,
    ),
    "a release by a claim that another had followed": (
        "stale", [*EXPIRED, *verdict("release", 1, 5 * S + 200)], DONE,
    ),
    "an extension that revived a lapsed claim": (
        "stale", [*EXPIRED, *verdict("extend", 1, 5 * S + 200, at=3 * S)], DONE,
    ),
    "an end by the token of the claim before": (
        "stale", [*EXPIRED[:-2], *verdict("settle", 2, 6 * S, "w2", by="t1")], DONE,
    ),
    "an end by a token that was given back": ("stale", [*RUN, *RELEASE, *END], DONE),
    "two ends by one claim": (
        "finished twice", [*GOOD, *verdict("settle", 1, 4 * S)], DONE,
    ),
    "two ends by two claims": (
        "finished twice", [*GOOD, claim(2, 5 * S), *verdict("settle", 2, 6 * S)], DONE,
    ),
    "a start before it was due": (
        "early", [*BORN, CLAIM, replace(START, t=1 * S - EARLY_US_MAX - 1), *END], DONE,
    ),
    "a start before its retry was due": (
        "early", [*RUN, *verdict("release", 1, 2 * S + 500, at=4 * S), SOONER, SOON, *AGAIN_END],
        DONE,
    ),
    "two claims with one fence": (
        "backwards", [*RUN, claim(1, 2 * S + 50, "w2", by="other"), *END], DONE,
    ),
    "a claim with a smaller fence than one before": (
        "backwards", [*BORN, claim(2, 2 * S), replace(CLAIM, t=5 * S), start(2, 5 * S),
                      *verdict("settle", 2, 6 * S)], DONE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found_for_what_it_is_and_nothing_else(name: str) -> None:
    verdict_, history, final = BAD[name]
    assert found(history, final) == [(verdict_, "a")]


@pytest.mark.parametrize(
    "readings",
    [
        [mark(1, 5), mark(2, 4, "m2")],
        [mark(1, 5), mark(2, 7), mark(3, 6, "m2", "invoke"), mark(4, 6, "m2")],
    ],
)
def test_a_mark_that_goes_back_is_found(readings: list[Event]) -> None:
    assert found(readings) == [("backwards", "closed")]


def test_marks_that_cross_are_found() -> None:
    swept = replace(mark(2, 5), id="swept q/0")
    closed = [replace(mark(t, 4), id="closed q/0") for t in (1, 2, 3)]
    assert found([swept, closed[0]]) == []  # it may have risen in between
    assert found([swept, closed[1]]) == [("crossed", "closed q/0")]  # of one reading
    assert found([swept, closed[2]]) == [("crossed", "closed q/0")]
    assert found([swept, replace(closed[2], epoch=5)]) == []
    assert found([swept, replace(closed[2], id="closed q/1")]) == []
    asked = replace(closed[0], type="invoke")
    assert found([swept, asked, closed[2]]) == []  # it began before


def test_an_epoch_is_granted_once_and_only_grows() -> None:
    one = Event(1, "m1", "ok", "grant", "monitor", epoch=1)
    again = replace(one, t=2, proc="m2")
    assert found([one, again]) == [("backwards", "monitor")]
    assert found([one, replace(again, epoch=2)]) == []
    assert found([one, replace(again, id="other")]) == []
    assert found([replace(one, epoch=3), replace(again, epoch=2)]) == [("backwards", "monitor")]
    assert found([one, replace(again, type="no")]) == []


@pytest.mark.parametrize(
    ("priorities", "late"), [((5, 0, 0, -5), 0), ((0, 5), 1), ((5, 0, 1, 5, -1, 0), 3)]
)
def test_what_comes_late_in_a_poll_is_counted_and_bounded(
    priorities: tuple[int, ...], late: int
) -> None:
    history = poll(*priorities)
    assert check(history, {}).counts["inversions"] == late
    assert found(history, {}, prefetch=late) == []
    if late:
        assert found(history, {}, prefetch=late - 1) == [("order", "a poll of w in q/0")]


def test_polls_and_shards_have_an_order_of_their_own() -> None:
    history = [*poll(0), *poll(5, name="next"), *poll(9, shard="q/1")]
    assert found(history, {}, prefetch=0) == []


FINE: dict[str, tuple[list[Event], dict[str, str]]] = {
    "a job that ran once": (GOOD, DONE),
    "a job whose end only the verdict tells": (GOOD, {}),
    "a job that was cancelled, and never ran": (BORN, {"a": "cancelled"}),
    "an enqueue without an answer that never ran": ([ASK], {}),
    "an enqueue without an answer that ran": ([ASK, CLAIM, START, *END], DONE),
    "an unknown enqueue that ran": ([ASK, replace(ACK, type="unknown"), *GOOD[2:]], DONE),
    "an unknown enqueue that was sent again": (
        [ASK, replace(ACK, type="unknown"), replace(ASK, t=ACK.t + 5), *GOOD[1:]], DONE,
    ),
    "an enqueue that was refused, and was right": (
        [ASK, replace(ACK, type="no"), ASK, *GOOD[1:]], DONE,
    ),
    "a start again after the lease ended": (EXPIRED, DONE),
    "a start again after the extended lease ended": (
        [*EXPIRED, *verdict("extend", 1, 3 * S, at=5 * S)], DONE,
    ),
    "a start again after an extension that was refused": (
        [*EXPIRED, replace(verdict("extend", 1, 5 * S + 50, at=9 * S)[1], type="no")], DONE,
    ),
    "a claim a millisecond before the end of the lease": (
        [*BORN, replace(CLAIM, at=LATER.t + EARLY_US_MAX), START, LATER, AGAIN, *AGAIN_END], DONE,
    ),
    "a start again after a section that raised": (
        [*EXPIRED, *section(1, "invoke", "no"), *section(2, "invoke", "ok")], DONE,
    ),
    "a start again after a section that ended": ([*EXPIRED, *section(1, "invoke", "ok")], DONE),
    "a start again after a release": ([*RUN, *RELEASE, SOONER, SOON, *AGAIN_END], DONE),
    "a start again after a release without an answer": (
        [*RUN, RELEASE[0], SOONER, SOON, *AGAIN_END], DONE,
    ),
    "a start again after its process died": (
        [*RUN, crash(2 * S + 200), SOONER, SOON, *AGAIN_END], DONE,
    ),
    "a start again after the process died that held the claim of a child": (
        [*BORN, CLAIM, start(1, 2 * S + 100, "child"), crash(2 * S + 200), SOONER, SOON,
         *AGAIN_END], DONE,
    ),
    "a start again after a claim of which nobody knows whether it happened": (
        [*BORN, replace(CLAIM, type="unknown"), START, SOONER, SOON, *AGAIN_END], DONE,
    ),
    "a start again after the job was carried": (
        [*RUN, *verdict("carry", 1, 2 * S + 200), SOONER, SOON, *AGAIN_END], DONE,
    ),
    "a start after the end that a redrive undid": (
        [*GOOD, *verdict("carry", 1, 4 * S), LATER, AGAIN, *AGAIN_END], DONE,
    ),
    "a death that was answered late, after a redrive and a cancellation of the waiting job": (
        [*RUN, END[0], *verdict("carry", 1, 4 * S), *verdict("settle", 1, 5 * S, "op", by="fresh"),
         replace(END[1], t=9 * S)], DONE,
    ),
    "an end that a redrive undid, and whose answer came after the next end": (
        [*RUN, END[0], *verdict("carry", 1, 4 * S), LATER, AGAIN, *AGAIN_END,
         replace(END[1], t=9 * S)], DONE,
    ),
    "a late end of a claim that nobody had taken over": (
        [*RUN, *verdict("settle", 1, 9 * S)], DONE,
    ),
    "an end that was refused, since another claim had followed": (
        [*EXPIRED, replace(verdict("settle", 1, 7 * S)[1], type="no")], DONE,
    ),
    "a redrive by the token of a birth, by which the job was moved when it first waited": (
        [*BORN, *verdict("release", 0, 1 * S + 50, "op", at=2 * S, by="born"), CLAIM, START, *END,
         *verdict("carry", 1, 4 * S, "op", at=4 * S, by="born"), LATER, AGAIN, *AGAIN_END], DONE,
    ),
    "an end that was refused after another had ended the claim": (
        [*RUN, *verdict("settle", 1, 3 * S, "op"), no("settle", 1, 4 * S)], DONE,
    ),
    "an end that was refused after one without an answer": (
        [*RUN, END[0], verdict("settle", 1, 4 * S)[0], no("settle", 1, 4 * S), LATER], DONE,
    ),
    "an end that was refused when a claim was lost that nobody told of": (
        [*RUN, no("settle", 1, 4 * S), claim(3, 5 * S, "w2"), start(3, 5 * S + 1, "w2"),
         *verdict("settle", 3, 6 * S, "w2")], DONE,
    ),
    "an end without an answer, and another end": ([*EXPIRED, END[0]], DONE),
    "the late start of a claim that another had followed": (
        [*BORN, CLAIM, LATER, AGAIN, start(1, 5 * S + 500), *AGAIN_END], DONE,
    ),
    "the late start of a claim after the end under another": (
        [*BORN, CLAIM, LATER, AGAIN, *AGAIN_END, start(1, 7 * S)], DONE,
    ),
    "a claim after the end that starts nothing": ([*GOOD, LATER], DONE),
    "an extension asked for before the next claim, and answered after it": (
        [*EXPIRED, *(replace(one, t=one.t + k * 3 * S) for k, one in
                     enumerate(verdict("extend", 1, 3 * S, at=5 * S)))], DONE,
    ),
    "a claim that was asked for early, and whose answer came late": (
        [*BORN, Event(2 * S, "w1", "invoke", "claim", "", 0, "t1"),
         replace(CLAIM, t=5 * S + 50), LATER, AGAIN, *AGAIN_END], DONE,
    ),
    "a start a millisecond before it is due": (
        [*BORN, CLAIM, replace(START, t=1 * S - EARLY_US_MAX), *END], DONE,
    ),
    "a retry that was brought forward": (
        [*RUN, *verdict("release", 1, 2 * S + 500, at=4 * S),
         *verdict("carry", 1, 2 * S + 600, at=2 * S + 700, by="fresh"), SOONER, SOON,
         *AGAIN_END], DONE,
    ),
    "a retry that was brought forward by a call without an answer, which was repeated": (
        [*RUN, *verdict("release", 1, 2 * S + 500, at=4 * S),
         *verdict("carry", 1, 2 * S + 600, at=2 * S + 700, by="fresh", answer="unknown"),
         *verdict("carry", 1, 2 * S + 650, at=2 * S + 700, by="fresh", answer="no"), SOONER, SOON,
         *AGAIN_END], DONE,
    ),
    "marks that grow or stay": ([mark(1, 5), mark(2, 5, "m2"), mark(3, 6)], {}),
    "a reading of a mark that began before a newer one was known": (
        [mark(1, 0, "m2", "invoke"), mark(2, 7), mark(3, 6, "m2")], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_a_history_that_only_looks_suspicious_is_passed(name: str) -> None:
    history, final = FINE[name]
    assert [finding.story() for finding in check(history, final).findings] == []


def test_counts_say_what_happened() -> None:
    unknown = [Event(1, "p", "unknown", "enqueue", "b"), Event(2, "w", "ok", "start", "b", 1)]
    refused = replace(verdict("settle", 1, 7 * S)[1], type="no")
    report = check([*EXPIRED, *unknown, refused, crash(1)], {"a": "done", "b": "dead"})
    assert report.counts == {
        "attempted": 2,
        "acknowledged": 1,
        "unknown": 1,
        "recovered": 1,
        "claims": 2,
        "starts": 3,
        "crashes": 1,
        "outcomes rejected": 1,
        "done": 1,
        "dead": 1,
        "started again: expired": 1,
        "polls": 2,
        "inversions": 0,
    }
    assert set(report.by_verdict().values()) == {0}


def test_a_finding_tells_a_story() -> None:
    noted = replace(END[1], note="done")
    finding = check([*RUN, END[0], noted, LATER, AGAIN], DONE).findings[0]
    assert finding.story() == (
        "illegitimate: a was started under claim 2 after its end\n"
        "  +0.000000 s  w1 settle ok claim 1 token=t1 (done)\n"
        "  +2.000090 s  w2 start ok claim 2"
    )


def test_a_diary_is_read_as_it_was_written_but_for_a_torn_last_line() -> None:
    noted = replace(CLAIM, note="a b\nc", priority=-5, shard="q/0")
    whole = b"".join(line_of(event) for event in [*GOOD, noted, mark(1, 5)])
    assert events_of(whole) == [*GOOD, noted, mark(1, 5)]
    assert events_of(whole[:-1]) == [*GOOD, noted]
    assert events_of(b'{"t":1') == events_of(b"") == []
    assert line_of(crash(7)) == b'{"t":7,"proc":"w1","type":"ok","f":"crash"}\n'


@pytest.mark.parametrize("line", [b"{", b"{}", b'{"t":1,"proc":"w","type":"ok","f":"dance"}'])
def test_a_whole_line_that_is_no_event_is_damage(line: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        events_of(line + b"\n")
