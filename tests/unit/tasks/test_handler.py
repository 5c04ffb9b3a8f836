"""Functions as a worker sees them, and arguments in bulk."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.core.codec import PAYLOAD_BYTES_MAX
from dueline.core.errors import BadInput
from dueline.core.retry import Retry
from dueline.tasks.arguments import Arguments
from dueline.tasks.handler import Context, Handler


def handler_of(function: Callable[..., Any]) -> Handler:
    """Register a function."""
    return Handler(function, name="tests.task", retry=Retry(), timeout_us=None)


def test_a_context_is_told_from_arguments_by_its_annotation() -> None:
    def without(context: int) -> None: ...
    def with_it(anything: Context, a: int) -> list[int]:
        return [a]

    def as_text(ctx: "Context") -> None: ...

    assert not handler_of(without).takes_context
    assert handler_of(with_it).takes_context
    assert handler_of(as_text).takes_context
    assert handler_of(with_it).result_kind == list[int]
    assert handler_of(with_it).arguments.encode((3,), {}) == b"[3]"


def test_a_context_elsewhere_than_first_is_refused() -> None:
    def second(a: int, ctx: Context) -> None: ...
    def twice(ctx: Context, again: Context) -> None: ...

    for function in (second, twice):
        with pytest.raises(BadInput, match="takes its Context as parameter 2") as raised:
            handler_of(function)
        assert "first parameter" in raised.value.hint


def test_an_annotation_that_nobody_knows_is_named() -> None:
    def unknown(value: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(BadInput, match="Nowhere"):
        handler_of(unknown)


def test_coroutine_functions_are_told_from_others() -> None:
    async def waits() -> int:
        return 1

    def plain() -> int:
        return 1

    assert handler_of(waits).is_async
    assert not handler_of(plain).is_async


# --- bulk ------------------------------------------------------------------------------------


def loose(a: Any, b: Any = 2) -> None: ...  # noqa: ANN401
def strict(a: int, b: str) -> None: ...
def by_name(a: int = 1, *, b: int = 2) -> None: ...


def codec(function: Callable[..., object]) -> Arguments:
    """Make the codec of a function's arguments."""
    return Arguments(function, "tests.task", skip=0)


values = st.none() | st.integers(-9, 9) | st.text(max_size=3) | st.floats() | st.lists(st.none())


def answer(write: Callable[..., list[bytes]], *given: object) -> list[bytes] | str:
    """Tell what is written, or why it is refused."""
    try:
        return write(*given)
    except BadInput as refused:
        return refused.message


def one_by_one(arguments: Arguments, calls: list[list[Any]]) -> list[bytes]:
    """Write calls, each on its own."""
    return [arguments.encode(args, {}) for args in calls]


@given(st.lists(st.lists(values, max_size=3), max_size=5))
def test_many_calls_are_written_or_refused_as_one_by_one(calls: list[list[Any]]) -> None:
    # C2
    for function in (loose, strict, by_name):
        arguments = codec(function)
        assert answer(arguments.encode_many, calls) == answer(one_by_one, arguments, calls)


def nested(depth: int) -> object:
    """Make a list in a list, and so on."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "bad",
    ["x" * PAYLOAD_BYTES_MAX, math.nan, [1, {"x": math.inf}], nested(2_000), object(), 1j],
    ids=["large", "nan", "inf inside", "deep", "object", "complex"],
)
def test_one_bad_call_among_many_is_found(bad: object) -> None:
    arguments = codec(loose)
    good: list[tuple[object, ...]] = [(1,), (None, 2), (["null", 1.5],)]
    assert len(arguments.encode_many(good)) == 3
    for place in range(4):
        with pytest.raises(BadInput):
            arguments.encode_many([*good[:place], (bad,), *good[place:]])
