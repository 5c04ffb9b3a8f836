"""The list of what others may rely on, against the code."""

from difflib import unified_diff
from pathlib import Path

import pytest

from dueline.web.http_api.application import OPERATIONS
from dueline.web.http_api.openapi import document
from tools import public_api


def changes() -> list[str]:
    """Return the lines of the committed list that differ from the code, as in a diff."""
    committed = public_api.PAGE.read_text(encoding="utf-8").splitlines()
    lines = unified_diff(committed, public_api.text().splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def test_the_list_is_that_of_the_code() -> None:
    found = changes()
    assert not found, (
        "The public interface or a stored format has changed:\n"
        + "\n".join(found)
        + "\nRun `make reference`, and review these lines in the commit"
        " (docs/operations/versions.md says what may change)."
    )


PLANTED = {
    "a parameter": (
        "Python",
        "dueline/api/task.py",
        "priority: int | None = None",
        "rank: int | None = None",
        "dueline.Task.using(",
    ),
    "a variable": (
        "Settings",
        "dueline/api/logs.py",
        "DUELINE_WORKER_LOG",
        "DUELINE_LOG",
        "DUELINE_WORKER_LOG",
    ),
    "a column of a store": (
        "Tables of stores",
        "dueline/stores/sqlite/schema.sql",
        "pos_us INTEGER NOT NULL",
        "pos_us INTEGER",
        "sqlite jobs: pos_us INTEGER NOT NULL",
    ),
    "a schema number": (
        "Tables of stores",
        "dueline/stores/redis/library.py",
        'SCHEMA_VERSION: Final = "1"',
        'SCHEMA_VERSION: Final = "99"',
        "redis schema 1",
    ),
    "a field of a record": (
        "Records in stores",
        "dueline/core/attempt.py",
        "    fence: Ann",
        "    hedge: Ann",
        "core.attempt.Attempt.fence: ",
    ),
}
"""Part, file, text, what replaces it, and what the line has that goes."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part, file, text, other, gone = PLANTED[name]
    changed = public_api.SOURCE / file
    assert text in changed.read_text(encoding="utf-8")

    def planted(path: Path) -> str:
        source = path.read_text(encoding="utf-8")
        return source.replace(text, other) if path == changed else source

    before = set(public_api.PARTS[part]())
    monkeypatch.setattr(public_api, "source_of", planted)
    public_api.tree_of.cache_clear()
    try:
        lost = before - set(public_api.PARTS[part]())
    finally:
        public_api.tree_of.cache_clear()
    assert any(gone in line for line in lost)


def test_a_planted_option_of_a_command_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_api, "flags", lambda _: "--planted")
    assert "dueline enqueue --planted" in public_api.command_line()


def test_a_planted_member_of_the_http_api_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    described = document(OPERATIONS, server="/api/v1")
    described["components"]["schemas"]["Enqueued"]["properties"]["planted"] = {"type": "string"}
    monkeypatch.setattr(public_api, "document", lambda *_, **__: described)
    added = set(public_api.http_api()) - set(public_api.source_of(public_api.PAGE).splitlines())
    assert added == {"JSON Enqueued.planted?: string"}
