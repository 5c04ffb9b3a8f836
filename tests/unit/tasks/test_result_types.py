"""Results whose annotation says that they cannot be kept."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from dueline import Dueline, JobFailed
from dueline.core.codec import unknown_kind


class Plain:
    """A class of an application."""


class Pair(NamedTuple):
    """Two numbers."""

    a: int
    b: int


@dataclass
class Order:
    """An order."""

    number: int


class Empty(enum.Enum):
    """Nothing yet."""


def test_a_class_that_json_cannot_carry_is_found_in_an_annotation() -> None:
    for kind in (Plain, list[Plain], dict[str, Plain | None], complex):
        assert unknown_kind(kind) is (complex if kind is complex else Plain)
    some: list[Any] = [
        None, type(None), Any, object, int, list[int], Pair, Order, datetime, Path, set[str],
        Literal["a"], Iterator[Order], Empty, "Plain",
    ]  # fmt: skip
    assert [unknown_kind(kind) for kind in some] == [None] * len(some)


def test_such_a_result_is_warned_of_where_the_task_is_registered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Dueline("memory://")

    @app.task(name="fine")
    def fine() -> list[Order]:
        return []

    assert caplog.messages == []

    @app.task(name="make", retry=None)
    def make() -> Plain:
        return Plain()

    (message,) = caplog.messages
    assert message.startswith(
        "The result of make cannot be kept as JSON: its annotation names Plain."
    )
    assert fine.name == "fine"


def test_a_result_that_cannot_be_kept_ends_the_job_without_a_retry() -> None:
    app, calls = Dueline("memory://"), []

    @app.task(name="make")
    def make(number: int) -> Any:  # noqa: ANN401  (it says nothing)
        calls.append(number)
        return Plain()

    job = make.enqueue(1)
    app.run_worker(burst=True)
    assert (job.status, calls) == ("dead", [1])
    with pytest.raises(JobFailed, match="cannot be written as JSON"):
        job.result()
