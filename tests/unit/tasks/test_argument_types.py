"""Types of arguments and results: standard library, attrs, pydantic, none (C2, A10)."""

import enum
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from dueline import BadInput, Dueline
from dueline.core.codec import AS_JSON, decode_result, encode_result
from dueline.tasks.arguments import Arguments
from dueline.tasks.payload_codecs import AS_MSGPACK

WHEN = datetime(2027, 1, 1, 12, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2


class Address(TypedDict):
    street: str
    number: int


def arguments(**kinds: Any) -> Arguments:  # noqa: ANN401
    """Make the codec of a function with these annotations; None for a missing one."""
    function = eval(f"lambda {', '.join(kinds)}: None")  # noqa: S307
    function.__annotations__ = {name: kind for name, kind in kinds.items() if kind is not None}
    return Arguments(function, "shop.send", skip=0)


def there_and_back(kind: Any, value: object) -> object:  # noqa: ANN401
    codec = arguments(a=kind)
    for form in (msgspec.UNSET, AS_MSGPACK):
        terms: Any = () if form is msgspec.UNSET else (form,)
        (by_place,), _ = codec.decode(codec.encode((value,), {}, *terms), *terms)
        read, named = codec.decode(codec.encode((), {"a": value}, *terms), *terms)
        assert (*read, *named.values()) == (by_place,)
    return by_place


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Colour, Colour.RED),
        (Level, Level.HIGH),
        (Path, Path("/srv/a b.txt")),
        (PurePosixPath, PurePosixPath("a")),
        (list[Path], [Path("a"), Path("b")]),
        (Path | None, None),
        (dict[str, Path], {"a": Path("b")}),
        (uuid.UUID, uuid.uuid4()),
        (Literal["a", "b"], "a"),
        (Address, {"street": "Main", "number": 5}),
        (Annotated[int, msgspec.Meta(ge=1)], 1),
        (datetime, WHEN),
        (timedelta, timedelta(seconds=5)),
        (Decimal, Decimal("1.10")),
        (set[int], {1, 2}),
        (tuple[int, ...], (1, 2)),
        (dict[int, str], {1: "a"}),
        (bytes, b"\xff"),
    ],
)
def test_annotated_values_come_back_as_they_were_given(kind: Any, value: object) -> None:  # noqa: ANN401
    read = there_and_back(kind, value)
    assert read == value
    assert type(read) is type(value)
    assert decode_result(encode_result(value, "t").decode(), kind) == value


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        (Colour, "blue", "Invalid enum value 'blue'"),
        (Literal["a", "b"], "c", "Invalid enum value 'c'"),
        (Address, {"street": "Main"}, "missing required field `number`"),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "Expected `int` >= 1"),
        (Path, 5, "Expected `Path`, got `int`"),
        (int, "5", "Expected `int`, got `str`"),
    ],
)
def test_a_value_that_does_not_fit_names_its_parameter(
    kind: Any,  # noqa: ANN401
    value: object,
    what: str,
) -> None:
    codec = arguments(to=str, b=kind)
    for args, kwargs in ((("ann", value), {}), ((), {"to": "ann", "b": value})):
        with pytest.raises(BadInput, match=r"do not fit shop\.send.*: `b[^`]*`: ") as raised:
            codec.encode(args, kwargs)
        assert what in raised.value.message
        assert "$" not in raised.value.message


def test_the_place_inside_a_parameter_is_named() -> None:
    with pytest.raises(BadInput, match=r"`b\[1\]\.number`: Expected `int`, got `str`"):
        arguments(a=int, b=list[Address]).encode(
            (1, [Address(street="a", number=1), {"street": "b", "number": "2"}]), {}
        )


def test_a_missing_argument_is_named_and_too_many_are_counted() -> None:
    codec = arguments(to=str, body=str)
    with pytest.raises(BadInput, match="missing a required argument: 'body'"):
        codec.encode(("ann",), {})
    with pytest.raises(BadInput, match="too many positional arguments"):
        codec.encode(("ann", "hi", "there"), {})

    def with_default(to: str, body: str = "") -> None: ...

    with pytest.raises(BadInput, match="missing a required argument: 'to'"):
        Arguments(with_default, "shop.send", skip=0).encode((), {})


def test_a_value_without_a_form_in_json_names_its_parameter() -> None:
    codec = arguments(to=str, when=None)
    text = r"The argument `when` of shop\.send cannot be written as JSON"
    for value in (object(), float("nan"), [{"a": 1j}], "\ud800"):
        for args, kwargs in ((("ann", value), {}), ((), {"to": "ann", "when": value})):
            with pytest.raises(BadInput, match=text):
                codec.encode(args, kwargs)
        with pytest.raises(BadInput, match=text):
            codec.encode_rest((value,), {}, 1, AS_JSON)
        with pytest.raises(BadInput, match=text):
            codec.encode_many([("ann", 1), ("ann", value)])


# --- without an annotation -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (WHEN, "datetime"),
        (date(2027, 1, 1), "date"),
        (b"\xff", "bytes"),
        ({1, 2}, "set[int]"),
        ((1, 2), "tuple[int, ...]"),
        ({1: "a"}, "dict[int, str]"),
        ([WHEN], "list[datetime]"),
        ({"a": WHEN}, "dict[str, datetime]"),
        ([1, {"x": (1,)}], "list[dict[str, tuple[int, ...]]]"),
        (Colour.RED, "Colour"),
        (uuid.uuid4(), "UUID"),
        (Path("a"), ""),
    ],
)
def test_an_argument_that_would_change_its_type_is_refused(value: object, annotation: str) -> None:
    codec = arguments(to=str, when=None)
    for args, kwargs in ((("ann", value), {}), ((), {"to": "ann", "when": value})):
        with pytest.raises(BadInput, match="would get `when` as another type") as raised:
            codec.encode(args, kwargs)
        assert f"`when: {annotation}" in raised.value.hint
    with pytest.raises(BadInput, match="`when`"):
        codec.encode_many([("ann", 1), ("ann", value)])


class Pair(NamedTuple):
    left: int
    right: str


def test_a_named_tuple_is_annotated_by_its_class() -> None:
    with pytest.raises(BadInput) as raised:
        arguments(pair=None).encode((Pair(1, "a"),), {})
    assert "`pair: Pair`" in raised.value.hint


def test_the_hint_for_further_arguments_annotates_one_of_them() -> None:
    def loose(*rest, **more) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN003

    def typed(*rest: date, **more: date) -> None: ...

    day = date(2027, 1, 1)
    with pytest.raises(BadInput, match="would get `rest` as another type") as raised:
        Arguments(loose, "shop.send", skip=0).encode((1, day), {})
    assert "`*rest: date`" in raised.value.hint
    with pytest.raises(BadInput, match="would get `when` as another type: datetime") as raised:
        Arguments(loose, "shop.send", skip=0).encode((), {"to": "ann", "when": day})
    assert "`**more: date`" in raised.value.hint
    codec = Arguments(typed, "shop.send", skip=0)
    assert codec.decode(codec.encode((day,), {"when": day})) == ((day,), {"when": day})


def test_a_further_named_argument_that_does_not_fit_is_named() -> None:
    def typed(**more: list[date]) -> None: ...

    with pytest.raises(BadInput, match=r"`when\[1\]`: Expected `date`, got `int`"):
        Arguments(typed, "shop.send", skip=0).encode((), {"when": [date(2027, 1, 1), 5]})


def test_a_parameter_whose_annotation_cannot_be_used_is_named() -> None:
    class Mixed(enum.Enum):
        A = "a"
        B = 2

    with pytest.raises(BadInput, match=r"cannot be used: `kind`: Enums must contain"):
        arguments(to=str, kind=Mixed)


@pytest.mark.parametrize("value", [1, "a", 1.5, None, True, [1, ["a"]], {"a": {"b": [None]}}, []])
def test_plain_values_need_no_annotation(value: object) -> None:
    codec = arguments(to=str, when=None)
    assert codec.decode(codec.encode(("ann", value), {})) == (("ann", value), {})
    assert codec.encode_many([("ann", value)]) == [codec.encode(("ann", value), {})]


def test_any_is_an_annotation() -> None:
    codec = arguments(when=Any)
    assert codec.decode(codec.encode(((1, 2),), {})) == (([1, 2],), {})


def test_the_rest_of_a_step_is_checked_too() -> None:
    codec = arguments(first=None, when=None)
    with pytest.raises(BadInput, match="`when`"):
        codec.encode_rest((WHEN,), {}, 1, AS_JSON)
    assert codec.encode_rest((1,), {}, 1, AS_JSON) == b"[1]"


# --- many calls ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "what"),
    [
        ([("ann",), (5,)], r"calls\[1\]: .*`to`: Expected `str`, got `int`"),
        ([{"to": "ann"}, {"too": "ben"}], r"calls\[1\]: .*'to"),
        ([("ann",), "ben"], r"calls\[1\]: A call must be"),
        ([("ann",), ("ben",), ()], r"calls\[2\]: .*missing a required argument: 'to'"),
    ],
)
def test_the_call_that_does_not_fit_is_named_by_its_index(calls: Any, what: str) -> None:  # noqa: ANN401
    app = Dueline("memory://")

    @app.task(name="send")
    def send(to: str) -> None: ...

    with pytest.raises(BadInput, match=what):
        send.enqueue_many(calls)


# --- other libraries -------------------------------------------------------------------------


def test_attrs_classes_are_arguments() -> None:
    attrs: Any = pytest.importorskip("attrs")
    order = attrs.make_class("Order", {"id": attrs.field(type=int)})
    assert there_and_back(order, order(5)) == order(5)
    with pytest.raises(BadInput, match="`a`: Expected `object`, got `str`"):
        arguments(a=order).encode(("x",), {})


@pytest.fixture
def pydantic() -> Any:  # noqa: ANN401
    return pytest.importorskip("pydantic")


def test_pydantic_models_are_arguments_and_results(pydantic: Any) -> None:  # noqa: ANN401
    line: Any = pydantic.create_model("Line", sku=str, count=Annotated[int, pydantic.Field(gt=0)])
    order: Any = pydantic.create_model(
        "Order", id=(int, ...), at=(datetime, ...), lines=(list[line], [])
    )
    value = order(id=5, at=WHEN, lines=[line(sku="a", count=1)])
    for kind, given in (
        (order, value),
        (list[order], [value]),
        (order | None, None),
        (dict[str, order], {"a": value}),
    ):
        assert there_and_back(kind, given) == given
    assert decode_result(encode_result(value, "t").decode(), order) == value
    # a caller may pass what the model reads
    codec = arguments(order=order)
    (read,), _ = codec.decode(codec.encode(({"id": 5, "at": WHEN},), {}))
    assert read == order(id=5, at=WHEN)
    with pytest.raises(BadInput, match=r"`order`: .*validation error.* lines\.0\.count"):
        codec.encode(({"id": 5, "at": WHEN, "lines": [{"sku": "a", "count": 0}]},), {})


def test_a_strict_model_with_aliases_comes_back(pydantic: Any) -> None:  # noqa: ANN401
    config = pydantic.ConfigDict(strict=True)
    event = pydantic.create_model(
        "Event", __config__=config, at=(datetime, pydantic.Field(alias="occurredAt"))
    )
    value = event(occurredAt=WHEN)
    assert there_and_back(event, value) == value


def test_a_model_without_an_annotation_is_refused(pydantic: Any) -> None:  # noqa: ANN401
    order: Any = pydantic.create_model("Order", id=int)
    with pytest.raises(BadInput, match="`a`") as raised:
        arguments(a=None).encode((order(id=5),), {})
    assert "`a: Order`" in raised.value.hint


@pytest.mark.parametrize("default", [False, True])
def test_constraints_of_pydantic_and_annotated_types_hold(
    pydantic: Any,  # noqa: ANN401
    *,
    default: bool,
) -> None:
    annotated: Any = pytest.importorskip("annotated_types")
    kinds: list[tuple[Any, object, object]] = [
        (Annotated[int, pydantic.Field(ge=1, le=5)], 5, 6),
        (Annotated[int, annotated.Gt(0)], 1, 0),
        (Annotated[str, pydantic.Field(min_length=1)], "a", ""),
    ]

    def plain(a: object) -> None: ...
    def optional(a: object = None) -> None: ...

    for kind, good, bad in kinds:
        function: Callable[..., None] = optional if default else plain
        function.__annotations__ = {"a": kind}
        codec = Arguments(function, "shop.send", skip=0)
        assert codec.decode(codec.encode((good,), {})) == ((good,), {})
        with pytest.raises(BadInput, match="`a`: Expected"):
            codec.encode((bad,), {})


def test_another_class_is_refused_by_its_name() -> None:
    class Other:
        pass

    with pytest.raises(BadInput, match="Encoding objects of type Other is unsupported"):
        arguments(a=None).encode((Other(),), {})
    with pytest.raises(BadInput, match="Other"):
        arguments(a=Other).encode((Other(),), {})
