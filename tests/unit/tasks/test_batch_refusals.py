"""Chunks, and functions for them, that are refused."""

from collections.abc import Callable
from typing import Any

import pytest

from dueline import BadInput, BatchOptions, Call, Context, Dueline
from tests.harness.batch_tasks import AT_ONCE, Doc


def takes_one(value: int) -> None: ...
def takes_context(ctx: Context, calls: list[Call[int]]) -> None: ...
def takes_values(values: list[int]) -> None: ...
def takes_nothing() -> None: ...


@pytest.mark.parametrize("function", [takes_one, takes_context, takes_values, takes_nothing])
def test_a_function_that_takes_no_list_of_calls_is_refused(
    plain: Dueline, function: Callable[..., None]
) -> None:
    with pytest.raises(BadInput, match="does not take a list of calls"):
        plain.task(name="bad", batch=BatchOptions())(function)


@pytest.mark.parametrize(
    "terms",
    [
        {"size": 0},
        {"size": 1001},
        {"size": True},
        {"within": -1},
        {"within": 3601},
        {"within": "soon"},
        {"by": 3},
    ],
)
def test_a_chunk_out_of_range_is_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        BatchOptions(**terms)


def test_a_chunk_by_what_no_call_has_is_refused(plain: Dueline) -> None:
    def fits(calls: list[Call[Doc]]) -> None: ...

    with pytest.raises(BadInput, match="names 'colour'"):
        plain.task(name="bad", batch=BatchOptions(by="{colour}"))(fits)
    with pytest.raises(BadInput, match="must be BatchOptions"):
        plain.task(name="bad", batch=10)(fits)  # type: ignore[call-overload]


def test_only_an_exception_makes_a_call_fail() -> None:
    app = Dueline("memory://")

    @app.task(name="bad", batch=AT_ONCE)
    def bad(calls: list[Call[int]]) -> None:
        calls[0].fail("no")  # type: ignore[arg-type]

    with pytest.raises(BadInput, match="fail is given 'no'"):
        bad(1)
