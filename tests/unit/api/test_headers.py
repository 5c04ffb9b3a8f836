"""Headers: small strings that travel with a job."""

from collections.abc import Iterator
from typing import Any

import pytest

from dueline import BadInput, BatchOptions, Call, Context, Dueline, Retry
from dueline.core.features import HEADERS, names_of

STORES = ("memory://", "memory://?transactional=off", "sqlite://{folder}/jobs.db")


@pytest.fixture(params=STORES)
def app(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Dueline]:  # noqa: ANN401
    made = Dueline(request.param.format(folder=f"/{tmp_path}"))
    yield made
    made.close()


def test_headers_travel_with_every_attempt(app: Dueline) -> None:
    seen: list[tuple[str, int, dict[str, str]]] = []

    @app.task(name="look", retry=Retry(attempts=2, delays=[0]))
    def look(ctx: Context) -> None:
        seen.append((ctx.task, ctx.attempt, ctx.headers))
        ctx.headers.clear()
        if ctx.attempt == 1:
            raise ValueError

    @app.task(name="all", batch=BatchOptions(2))
    def all_of(calls: list[Call[int]]) -> None:
        seen.extend(("all", call.value, call.headers) for call in calls)

    look.enqueue()
    assert HEADERS not in names_of(app.store)
    app.run_worker(burst=True)
    seen.clear()
    given = {"b": "2", "a": "é"}
    look.using(headers=given).using(priority=1).enqueue()
    app.enqueue_many([all_of.using(headers={"n": "1"}).call(1), all_of.call(2)])
    assert HEADERS in names_of(app.store)
    app.run_worker(burst=True, concurrency=1)
    assert sorted(seen, key=str) == [
        ("all", 1, {"n": "1"}), ("all", 2, {}), ("look", 1, given), ("look", 2, given),
    ]  # fmt: skip
    assert look.using(headers=given).using(headers={})._options.headers == ()


def test_a_plain_call_has_no_headers() -> None:
    app = Dueline("memory://")

    @app.task(name="look")
    def look(ctx: Context) -> dict[str, str]:
        return ctx.headers

    assert look() == {}


@pytest.mark.parametrize(
    "headers",
    [
        "a", {"a": 1}, {1: "a"}, {"": "a"}, {"a\n": "b"}, {"a": "b\n"}, {"a": "\ud800"},
        {"a" * 65: ""}, {"a": "b" * 4096}, {str(number): "" for number in range(33)},
    ],
)  # fmt: skip
def test_other_headers_are_refused(headers: Any) -> None:  # noqa: ANN401
    app = Dueline("memory://")

    @app.task(name="add")
    def add() -> None: ...

    with pytest.raises(BadInput, match="header"):
        add.using(headers=headers)
    with pytest.raises(BadInput, match="`headers`"):
        add.using(headers={"a": "b"}).step()
    with pytest.raises(BadInput, match="`headers`"):
        add.using(headers={"a": "b"}).recurring()
