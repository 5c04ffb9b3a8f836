"""The checker, on histories in which only all calls together are wrong."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from checker import check
from checker.journal import Event
from tests.harness.checked_events import (
    AGAIN,
    AGAIN_END,
    BORN,
    DONE,
    END,
    GOOD,
    LATER,
    RELEASE,
    RUN,
    START,
    S,
    claim,
    verdict,
)


def asking(attempt: int, t: int, proc: str) -> Event:
    """Make what is written before a claim."""
    return Event(t, proc, "invoke", "claim", "", 0, f"t{attempt}")


def spanning(f: str, attempt: int, t: int, over: int, proc: str = "w1") -> list[Event]:
    """Make a verdict that is answered late."""
    asked, answer = verdict(f, attempt, t, proc)
    return [asked, replace(answer, t=over)]


OVERLAPPING = [
    asking(2, 5 * S - 100, "w2"),
    *verdict("extend", 2, 5 * S, "w2", at=9 * S),
    claim(2, 8 * S, "w2"),
]
"""The next claim, whose answer comes after another thread has used it."""


BAD: dict[str, tuple[str, Sequence[Event]]] = {
    "a release that held after the end": (
        "unexplained", [*GOOD, *verdict("release", 1, 4 * S, at=4 * S)],
    ),
    "an extension that held after the end": (
        "unexplained", [*GOOD, *verdict("extend", 1, 4 * S, at=9 * S)],
    ),
    "an extension that held after the release of its claim": (
        "stale", [*RUN, *RELEASE, *verdict("extend", 1, 3 * S, at=9 * S), LATER, AGAIN, *AGAIN_END],
    ),
    "an end that held after its job was carried away": (
        "unexplained", [*RUN, *verdict("carry", 1, 2 * S + 500, "op"), *END],
    ),
    "an extension that held after the end of a claim whose answer nobody wrote down": (
        "unexplained",
        [*BORN, asking(1, 2 * S, "w1"), START, *END, *verdict("extend", 1, 4 * S, at=9 * S)],
    ),
    "a second carry by the same token": (
        "unexplained",
        [*RUN, *verdict("carry", 1, 2 * S + 500), *verdict("carry", 1, 3 * S, "op"),
         LATER, AGAIN, *AGAIN_END],
    ),
    "an extension after one of the next claim, whose answer came later yet": (
        "unexplained", [*RUN, *OVERLAPPING, *verdict("extend", 1, 6 * S, at=9 * S)],
    ),
    "a release during the next claim, after which its claim still held": (
        "unexplained",
        [*RUN, *OVERLAPPING, *spanning("release", 1, 4 * S, 7 * S),
         *verdict("extend", 1, 6 * S, at=9 * S)],
    ),
    "two claims that each held only after the other": (
        "unexplained",
        [*RUN, *OVERLAPPING, asking(3, 4 * S, "w3"),
         claim(3, 9 * S, "w3"), *verdict("extend", 3, 5 * S, "w3", at=9 * S),
         *verdict("extend", 2, 6 * S, "w2", at=9 * S)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_no_order_explains_is_found(name: str) -> None:
    verdict_, history = BAD[name]
    findings = check(history, DONE).findings
    assert [(finding.verdict, finding.id) for finding in findings] == [(verdict_, "a")]


FINE: dict[str, Sequence[Event]] = {
    "an end, a release and the next claim that overlap in the one order that explains them": [
        *RUN, *verdict("extend", 1, 6 * S, at=6 * S), *spanning("release", 1, 3 * S, 9 * S),
        asking(2, 4 * S, "w2"), claim(2, 9 * S, "w2"),
        *verdict("extend", 2, 7 * S, "w2", at=9 * S), *spanning("settle", 2, 6 * S, 10 * S, "w2"),
    ],
    "an end without an answer that happened, and was tried again": [
        *RUN, END[0], *verdict("extend", 1, 4 * S, at=9 * S), *verdict("settle", 1, 5 * S),
    ],
    "a redrive of what had ended while the answer was on its way": [
        *RUN, END[0], *verdict("carry", 1, 3 * S + 20, "op", by="born"),
        replace(END[1], t=4 * S), LATER, AGAIN, *AGAIN_END,
    ],
    "an extension asked for twice at once": [
        *RUN, *verdict("extend", 1, 3 * S, at=9 * S)[:1], *verdict("extend", 1, 3 * S, at=9 * S),
        *verdict("settle", 1, 4 * S),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_what_one_order_explains_is_passed(name: str) -> None:
    assert [finding.story() for finding in check(FINE[name], DONE).findings] == []


def test_a_search_that_takes_too_long_is_given_up_and_counted() -> None:
    maybe = [replace(claim(fence, 4 * S), type="unknown") for fence in range(2, 22)]
    claimed = [replace(event, attempt=22) for event in OVERLAPPING]
    late = verdict("extend", 1, 6 * S, at=9 * S)
    report = check([*RUN, *maybe[:3], *claimed, *late], DONE)
    assert report.by_verdict()["unexplained"] == 1
    assert "too long to order" not in report.counts
    report = check([*RUN, *maybe, *claimed, *late], DONE)
    assert report.by_verdict()["unexplained"] == 0
    assert report.counts["too long to order"] == 1
