"""Arguments and results, as bytes and back."""

import enum
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.core.codec import (
    PAYLOAD_BYTES_MAX,
    RESULT_BYTES_MAX,
    decode,
    decode_result,
    encode,
    encode_result,
    pack,
    unpack,
)
from dueline.core.errors import BadInput, StoreCorrupt
from dueline.tasks.arguments import Arguments

Given = tuple[Sequence[Any], Mapping[str, Any]]


def codec(function: Callable[..., object], *, skip: int = 0) -> Arguments:
    """Make the codec of a function's arguments."""
    return Arguments(function, "tests.task", skip=skip)


def there_and_back(function: Callable[..., object], *args: object, **kwargs: object) -> Given:
    """Write arguments and read them as a worker does."""
    arguments = codec(function)
    found_args, found_kwargs = arguments.decode(arguments.encode(args, kwargs))
    return tuple(found_args), dict(found_kwargs)


def called(function: Callable[..., Any], *args: object, **kwargs: object) -> Any:  # noqa: ANN401
    """Call a function with what a worker would give it."""
    found_args, found_kwargs = there_and_back(function, *args, **kwargs)
    return function(*found_args, **found_kwargs)


# --- kinds of parameters ---------------------------------------------------------------------


def nothing() -> None: ...
def two(a: int, b: str) -> tuple[int, str]:
    return a, b


def loose(a, b=2):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return a, b


def defaults(a: int, b: int = 20, c: int = 30) -> tuple[int, ...]:
    return a, b, c


def named(a: int, *, b: int, c: int = 30) -> tuple[int, ...]:
    return a, b, c


def positional(a: int, /, b: int = 20) -> tuple[int, ...]:
    return a, b


def variadic(a: int, *rest: float, **names: timedelta) -> object:
    return a, rest, names


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "body"),
    [
        (nothing, (), {}, "[]"),
        (two, (1, "x"), {}, '[1,"x"]'),
        (two, (), {"b": "x", "a": 1}, '[1,"x"]'),
        (two, (1,), {"b": "x"}, '[1,"x"]'),
        (loose, (None,), {}, "[null]"),
        (loose, ([1], {"k": 1.5}), {}, '[[1],{"k":1.5}]'),
        (defaults, (1,), {}, "[1]"),
        (defaults, (1, 2), {}, "[1,2]"),
        (defaults, (1,), {"c": 3}, '{"args":[1],"kwargs":{"c":3}}'),
        (named, (1,), {"b": 2}, '{"args":[1],"kwargs":{"b":2}}'),
        (positional, (1,), {"b": 2}, "[1,2]"),
        (variadic, (1,), {}, "[1]"),
        (variadic, (1, 2.5, 3.5), {}, "[1,2.5,3.5]"),
        (variadic, (1,), {"x": timedelta(days=1)}, '{"args":[1],"kwargs":{"x":"P1D"}}'),
    ],
)
def test_a_body_is_an_array_or_names_args_and_kwargs(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], body: str
) -> None:
    # C13, A10: documented, so that others can write jobs too
    assert codec(function).encode(args, kwargs).decode() == body
    assert called(function, *args, **kwargs) == function(*args, **kwargs)


def test_defaults_are_those_of_the_function_that_runs_not_of_the_one_that_enqueued() -> None:
    body = codec(defaults).encode((1,), {})
    args, kwargs = codec(defaults).decode(body)
    assert (tuple(args), dict(kwargs)) == ((1,), {})


@pytest.mark.parametrize("body", [b'{"args":[1,"x"]}', b'{"kwargs":{"a":1,"b":"x"}}', b'[1, "x"]'])
def test_the_long_form_may_leave_out_what_is_empty(body: bytes) -> None:
    args, kwargs = codec(two).decode(body)
    assert two(*args, **kwargs) == (1, "x")


def test_a_context_is_left_out() -> None:
    def with_context(ctx: object, a: int) -> None: ...

    assert codec(with_context, skip=1).encode((1,), {}) == b"[1]"
    with pytest.raises(BadInput):
        codec(with_context, skip=1).encode((1, 2), {})


# --- annotated types -------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Movie(TypedDict):
    title: str


@dataclass(frozen=True)
class Order:
    number: int
    lines: tuple[Point, ...]
    paid: datetime | None = None


class Struct(msgspec.Struct):
    name: str


Age = NewType("Age", int)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
VALUES: Sequence[tuple[object, object]] = [
    (int, 3),
    (int, 10**400),
    (int | None, None),
    (float, 2.5),
    (bool, True),
    (str, "ä\0🙂"),
    (bytes, b"\x00\xff"),
    (bytes | None, b"\x00\xff"),
    (datetime, NOON),
    (date, NOON.date()),
    (timedelta, timedelta(seconds=1.5)),
    (uuid.UUID, uuid.UUID(int=7)),
    (Decimal, Decimal("1.10")),
    (Colour, Colour.RED),
    (Literal["a", "b"], "a"),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "x")),
    (set[int], {1, 2}),
    (dict[str, Colour], {"x": Colour.RED}),
    (dict[int, str], {1: "one"}),
    (dict[uuid.UUID, int], {uuid.UUID(int=7): 1}),
    (Point, Point(1, 2)),
    (Movie, Movie(title="x")),
    (Order, Order(1, (Point(1, 2),), NOON)),
    (Struct, Struct("x")),
    (Age, 3),
    (Annotated[int, msgspec.Meta(ge=0)], 3),
    (object, {"a": [1, None]}),
    (Any, {"a": [1, None]}),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_values_come_back_as_the_annotated_type_however_they_are_given(
    kind: object, value: object
) -> None:
    def plain(value: Any, more: Any = None) -> None: ...  # noqa: ANN401
    def by_name(*, value: Any) -> None: ...  # noqa: ANN401
    def many(*value: Any) -> None: ...  # noqa: ANN401
    def names(**value: Any) -> None: ...  # noqa: ANN401

    for function in (plain, by_name, many, names):
        function.__annotations__["value"] = kind
    assert there_and_back(plain, value) == ((value,), {})
    assert there_and_back(plain, value, more=1) == ((value, 1), {})
    assert there_and_back(by_name, value=value) == ((), {"value": value})
    assert there_and_back(many, value, value) == ((value, value), {})
    assert there_and_back(names, one=value) == ((), {"one": value})
    assert type(there_and_back(plain, value)[0][0]) is type(value)
    assert type(there_and_back(by_name, value=value)[1]["value"]) is type(value)


def test_annotations_as_strings_are_resolved() -> None:
    def later(order: "Order") -> None: ...

    assert there_and_back(later, Order(1, ())) == ((Order(1, ()),), {})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def anything(*args: Any, **kwargs: Any) -> Given:  # noqa: ANN401
    return args, kwargs


@pytest.mark.long
@given(
    st.lists(json_values, max_size=4), st.dictionaries(st.text(min_size=1), json_values, max_size=3)
)
def test_plain_values_come_back_as_they_went(args: list[Any], kwargs: dict[str, Any]) -> None:
    # C13
    assert there_and_back(anything, *args, **kwargs) == (tuple(args), kwargs)


@pytest.mark.slow
@given(json_values, json_values, st.booleans())
def test_whether_by_place_or_by_name_a_call_is_the_same_bytes(a: Any, b: Any, swap: bool) -> None:  # noqa: ANN401, FBT001
    names = {"b": b, "a": a} if swap else {"a": a, "b": b}
    assert codec(loose).encode((a, b), {}) == codec(loose).encode((), names)
    assert called(loose, a, b) == (a, b)


@given(st.binary(max_size=40))
def test_a_body_of_any_bytes_is_read_or_refused(body: bytes) -> None:
    for function in (two, loose, named, variadic):
        try:
            args, kwargs = codec(function).decode(body)
        except BadInput:
            continue
        function(*args, **kwargs)


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (two, (1,), {}),
        (two, (1, "x", 3), {}),
        (two, (1, 2), {}),
        (two, ("1", "x"), {}),
        (two, (True, "x"), {}),
        (two, (1, "x"), {"c": 1}),
        (two, (1, "x"), {"b": "x"}),
        (two, (1, None), {}),
        (nothing, (None,), {}),
        (defaults, (), {}),
        (defaults, (1, 2, 3, 4), {}),
        (named, (1, 2), {}),
        (named, (1,), {}),
        (named, (1,), {"b": "x"}),
        (positional, (), {"a": 1}),
        (variadic, (1, "x"), {}),
        (variadic, (1,), {"x": 1.5j}),
        (variadic, (1,), {"x": "soon"}),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    # A1: at the call, not in the worker
    with pytest.raises(BadInput, match=r"tests\.task"):
        codec(function).encode(args, kwargs)


def nested(depth: int) -> object:
    """Make a list in a list, and so on."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [object(), 1j, print, {(1, 2): 3}, "\ud800", iter(())],
    ids=["object", "complex", "function", "tuple key", "surrogate", "iterator"],
)
def test_what_json_cannot_carry_is_refused(value: object) -> None:
    expect_refusal(value)


def test_what_is_too_deep_for_json_is_refused() -> None:
    expect_refusal(nested(100_000))


def expect_refusal(value: object) -> None:
    with pytest.raises(BadInput):
        codec(loose).encode((value,), {})
    with pytest.raises(BadInput):
        encode_result(value, "tests.task")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_floats_that_json_has_no_word_for_are_refused_where_a_float_is_asked(value: float) -> None:
    def takes(value: float) -> None: ...

    with pytest.raises(BadInput):
        codec(takes).encode((value,), {})


def test_a_payload_of_just_the_allowed_size_passes() -> None:
    # C13
    fits = "x" * (PAYLOAD_BYTES_MAX - len('[""]'))
    assert len(codec(loose).encode((fits,), {})) == PAYLOAD_BYTES_MAX
    with pytest.raises(BadInput, match=r"262145 bytes; 262144 are allowed"):
        codec(loose).encode((fits + "x",), {})


class Unreadable:
    pass


def test_an_annotation_that_cannot_be_read_is_refused_at_once() -> None:
    def plain(value: int | Unreadable) -> None: ...
    def by_name(*, value: int | Unreadable) -> None: ...
    def many(*value: int | Unreadable) -> None: ...
    def unknown(value: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for function in (plain, by_name, many, unknown):
        with pytest.raises(BadInput, match=r"An annotation of tests\.task"):
            codec(function)


def test_a_value_that_only_looks_like_its_annotated_type_is_refused() -> None:
    def takes(value: Unreadable, more: set[list[int]] | None = None) -> None: ...

    for body in (b"[1]", b"[null,[[1]]]"):
        with pytest.raises(BadInput, match="do not fit"):
            codec(takes).decode(body)


@pytest.mark.parametrize("body", [b"", b"[1", b"3", b"null", b'{"args":3}', b'{"kwargs":[]}'])
def test_a_body_that_is_none_is_refused_by_the_worker(body: bytes) -> None:
    with pytest.raises(BadInput, match=r"do not fit tests\.task"):
        codec(two).decode(body)


# --- results, values of ours, messages -------------------------------------------------------


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_results_come_back_as_the_annotated_type(kind: object, value: object) -> None:
    # C17
    assert decode_result(encode_result(value, "tests.task").decode(), kind) == value


def test_a_result_that_is_not_of_its_annotated_type_comes_back_as_plain_json() -> None:
    assert decode_result('["x"]', int) == ["x"]


@pytest.mark.parametrize("data", ['{"', "\ud800", "[" * 5000, "9" * 5000])
def test_a_damaged_result_is_called_that(data: str) -> None:
    with pytest.raises(StoreCorrupt, match="The store holds a result that cannot be read"):
        decode_result(data, int)


def test_a_result_of_just_the_allowed_size_passes() -> None:
    fits = "x" * (RESULT_BYTES_MAX - 2)
    assert len(encode_result(fits, "tests.task")) == RESULT_BYTES_MAX
    with pytest.raises(BadInput, match=r"result of tests\.task has 1048577 bytes"):
        encode_result(fits + "x", "tests.task")


def test_values_of_ours_are_json_objects() -> None:
    order = Order(1, (Point(1, 2),))
    assert json.loads(encode(order)) == {"number": 1, "lines": [[1, 2]], "paid": None}
    assert decode(encode(order), Order) == order


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"number":"x","lines":[]}', b"\xff"])
def test_values_that_do_not_fit_are_damage(data: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="holds a Order"):
        decode(data, Order)


def test_messages_keep_bytes_and_text_apart() -> None:
    assert unpack(pack((1, b"\xff", "ä", (None, 2.5)))) == [1, b"\xff", "ä", [None, 2.5]]
