"""Violations planted into a history of durable functions."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dueline import Dueline

Row = dict[str, Any]


@dataclass
class Past:
    """The history of durable functions whose workers were killed."""

    app: Dueline
    folder: Path
    rows: list[Row]

    def records(self, **words: str) -> list[Row]:
        """Return the records whose words are as given, of sagas."""
        return [
            row for row in self.rows
            if row["outcome"] == "recorded" and row["task"] == "saga"
            and words.items() <= words_of(row).items()
        ]  # fmt: skip

    def ended(self, outcome: str) -> Row:
        """Return the last attempt of a saga with this outcome."""
        return next(
            row for row in self.rows if row["worker"] and row["outcome"] == outcome
            and row["task"] == "saga"
        )  # fmt: skip


WORDS = ("generation", "position", "kind", "state", "undo", "job", "name")


def words_of(row: Row) -> dict[str, str]:
    return dict(zip(WORDS, [*row["error"].split(" ", 6), ""], strict=False))


def again(row: Row, **changes: Any) -> Row:
    return row | {"id": f"{row['id']}-again"} | changes


def described_as(row: Row, **words: str) -> Row:
    return row | {"error": " ".join((words_of(row) | words).values()).rstrip()}


def twice(past: Past) -> None:
    past.rows.append(again(past.records(kind="step")[0]))


def undone_twice(past: Past) -> None:
    past.rows.append(again(past.records(kind="undo")[0]))


def child_twice(past: Past) -> None:
    call = past.records(kind="call")[0]
    past.rows.append(described_as(again(call), position="999"))


def undone(past: Past) -> None:
    job_id = past.ended("done")["job_id"]
    (step,) = (row for row in past.records(kind="step", position="1") if row["job_id"] == job_id)
    past.rows.append(described_as(again(step), kind="undo", undo="-"))


def not_undone(past: Past) -> None:
    past.rows.remove(past.records(kind="undo")[0])


def no_end(past: Past) -> None:
    past.rows.remove(past.records(kind="end")[0])


def failed_and_done(past: Past) -> None:
    past.rows = [
        row for row in past.rows if row["task"] != "saga" or words_of(row).get("kind") != "undo"
    ]
    for row in past.rows:
        if row["task"] == "saga" and row["outcome"] == "dead":
            row["outcome"] = "done"


PLANTS: dict[Callable[[Past], None], str] = {
    twice: "position twice", undone_twice: "position twice", child_twice: "child twice",
    undone: "undone", not_undone: "not undone", no_end: "undone",
    failed_and_done: "failed and done",
}  # fmt: skip
