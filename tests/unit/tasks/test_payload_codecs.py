"""Arguments in other codecs than JSON, from the call to the handler."""

import ast
import math
import tracemalloc
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dueline
from dueline import BadInput, Dueline, Retry, pipeline
from dueline.core.codec import DEPTH_MAX, JSON, OWN_MAX, OWN_MIN, PAYLOAD_BYTES_MAX
from dueline.core.job import Job as Row
from dueline.tasks.handler import Handler
from dueline.tasks.payload_codecs import (
    AS_MSGPACK,
    MSGPACK,
    Payloads,
    as_json,
    opened,
)

URLS = ["memory://", "memory://?transactional=off", "sqlite:///{}/jobs.db"]

PLAIN_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text("abc"), inner, max_size=5),
    max_leaves=20,
)


@dataclass
class Order:
    """What a call may carry."""

    number: int
    lines: list[str]


def flip(data: bytes) -> bytes:
    """Stand for an encryption, which it undoes as well."""
    return bytes(byte ^ 0x55 for byte in data)


def naked(data: bytes) -> bytes:
    """Stand for a codec whose bytes look like JSON."""
    return data[1:]


@pytest.mark.parametrize("url", URLS)
def test_bytes_reach_the_handler_as_bytes_or_are_refused(url: str, tmp_path: Path) -> None:
    # C13
    given: list[object] = []
    app = Dueline(url.format(tmp_path))

    @app.task(name="anything")
    def anything(value: Any, *more: Any, **named: Any) -> None:  # noqa: ANN401
        given.append((value, more, named))

    @app.task(name="plain")
    def plain(value: Any, other: str = "") -> None:  # noqa: ANN401
        given.append((value, other))

    @app.task(name="typed")
    def typed(value: bytes, table: dict[str, bytes], *more: bytes) -> None:
        given.append((value, table, more))

    @app.task(name="packed", codec="msgpack")
    def packed(value: Any) -> None:  # noqa: ANN401
        given.append(value)

    refused: list[Callable[[], object]] = [
        lambda: anything.enqueue(b"\xff"),
        lambda: anything.enqueue(1, {"a": [bytearray(b"x")]}),
        lambda: anything.enqueue(1, name=b""),
        lambda: anything.enqueue({b"key": 1}),
        lambda: plain.enqueue([2**70, b"x"]),
        lambda: plain.enqueue(1, b"x"),
        lambda: plain.enqueue_many([(1,), (b"x",), (2,)]),
        lambda: plain.using(queue="other").enqueue(b"x"),
        lambda: app.start(pipeline(typed.step(b"x", {}), plain.step(b"x"))),
    ]
    for call in refused:
        with pytest.raises(BadInput, match="holds bytes that its handler") as raised:
            call()
        assert "msgpack" in raised.value.hint
    plain.enqueue("Łódź ąęć", "ő")
    typed.enqueue(b"\xff", {"a": b"1"}, b"x", b"x")
    packed.enqueue([b"\xff"])
    app.run_worker(burst=True)
    app.close()
    # In any order: the jobs are in several shards, and run at once.
    assert sorted(given, key=repr) == [
        ("Łódź ąęć", "ő"),
        (b"\xff", {"a": b"1"}, (b"x", b"x")),
        [b"\xff"],
    ]


def sealing(payloads: Payloads) -> Payloads:
    payloads.add("sealed", 64, encode=flip, decode=flip)
    return payloads


def handler_of(
    function: Callable[..., Any], payloads: Payloads, codec: str | None = None
) -> Handler:
    return Handler(
        function, name="t", retry=Retry(), timeout_us=None, payloads=payloads, codec=codec
    )


def any_value(value: Any) -> None:  # noqa: ANN401  (of no type)
    del value


def rich(  # noqa: PLR0917  (one of each kind)
    order: Order, at: datetime, day: date, data: bytes, price: Decimal, who: UUID, wait: timedelta
) -> None:
    del order, at, day, data, price, who, wait


def spread_out(first: int, *rest: bytes, last: str = "z", **named: dict[int, float]) -> None:
    del first, rest, last, named


RICH = (
    Order(1, ["a"]),
    datetime(2026, 11, 22, tzinfo=UTC),
    date(2026, 11, 22),
    b"\x00\xff",
    Decimal("1.50"),
    UUID(int=7),
    timedelta(days=1, seconds=2),
)


@pytest.mark.parametrize("bound", [None, 0, 100])
@pytest.mark.parametrize("codec", ["json", "msgpack", "sealed"])
def test_every_codec_brings_back_the_annotated_types(codec: str, bound: int | None) -> None:
    payloads = sealing(Payloads())
    payloads.use(codec, compress_above=bound)
    handler = handler_of(rich, payloads)
    assert tuple(handler.read(*handler.write(RICH, {}))[0]) == RICH
    number, (one, two) = handler.write_many([(RICH, {}), ((), {"data": b"", **named(RICH)})])
    assert tuple(handler.read(number, one)[0]) == RICH
    assert tuple(handler.read(number, two)[0]) == (*RICH[:3], b"", *RICH[4:])

    handler = handler_of(spread_out, payloads)
    args, kwargs = handler.read(*handler.write((1, b"2", b"3"), {"last": "4", "x": {5: 6.5}}))
    assert (list(args), dict(kwargs)) == ([1, b"2", b"3"], {"last": "4", "x": {5: 6.5}})


def named(values: tuple[Any, ...]) -> Mapping[str, Any]:
    names = ("order", "at", "day", "data", "price", "who", "wait")
    return {name: value for name, value in zip(names, values, strict=True) if name != "data"}


@given(
    value=PLAIN_VALUES, codec=st.sampled_from(["msgpack", "sealed"]), bound=st.none() | st.just(9)
)
def test_plain_values_survive(value: object, codec: str, bound: int | None) -> None:
    payloads = sealing(Payloads())
    payloads.use(codec, compress_above=bound)
    handler = handler_of(any_value, payloads)
    (found,), _ = handler.read(*handler.write((value,), {}))
    assert found == value


@given(codec=st.integers(0, 255), body=st.binary(max_size=200))
def test_whatever_the_store_holds_is_read_or_refused(codec: int, body: bytes) -> None:
    handler = handler_of(any_value, sealing(Payloads()))
    for function in (lambda: handler.read(codec, body), lambda: as_json(codec, body)):
        with suppress(BadInput):
            function()


def test_the_number_tells_how_to_read() -> None:
    payloads = sealing(Payloads())
    handler = handler_of(any_value, payloads)
    long, written = "ä" * 500, {}
    for codec, bound in [
        ("json", None),
        ("msgpack", None),
        ("json", 99),
        ("msgpack", 99),
        ("sealed", 99),
    ]:
        payloads.use(codec, compress_above=bound)
        number, body = handler.write((long,), {})
        written[number] = body
        assert payloads.knows(number)
    assert sorted(written) == [JSON, MSGPACK, 2, 3, 64]
    assert len(written[2]) < 100 < len(written[JSON])
    payloads.use()
    for number, body in written.items():
        assert list(handler.read(number, body)[0]) == [long]


def test_what_is_small_or_would_grow_is_not_compressed() -> None:
    payloads = Payloads()
    payloads.use(compress_above=20)
    handler = handler_of(any_value, payloads)
    assert handler.write(("small",), {}) == (2, b'["small"]')
    noise = "q8Zk3vB1xT7mW0yR5nL2"
    assert handler.write((noise,), {}) == (2, b'["%s"]' % noise.encode())


@pytest.mark.long
def test_a_bomb_is_refused_before_it_is_whole() -> None:
    bomb = zlib.compress(b"[" + b" " * 200_000_000 + b"1]", 9)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="more than 262144 bytes"):
            opened(2, bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 * PAYLOAD_BYTES_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        (2, b"x is no stream"),
        (2, zlib.compress(b"[1]")[:-1]),
        (1, b"\xdd\xff\xff\xff\xff"),
        (1, b"\x91" * 100_000),
        (1, b"[1]"),
        (0, b"\x91\x01"),
        (4, b"[1]"),
        (64, b""),
        (64, flip(b"\x40[1]")),
        (64, flip(b"\x04[1]")),
    ],
)
def test_damage_is_told(codec: int, body: bytes) -> None:
    with pytest.raises(BadInput):
        handler_of(any_value, sealing(Payloads())).read(codec, body)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        [math.inf],
        {"a": -math.inf},
        partial(deep, DEPTH_MAX),
        partial(deep, 100_000),  # made by the test: it takes a while
        2**80,
        object(),
        "\ud800",
    ],
)
def test_message_pack_refuses_what_json_does(value: object) -> None:
    payloads = Payloads()
    payloads.use("msgpack")
    with pytest.raises(BadInput, match="cannot be written as MessagePack"):
        handler_of(any_value, payloads).write(
            (value() if isinstance(value, partial) else value,), {}
        )


def test_arguments_are_checked_in_every_codec() -> None:
    payloads = sealing(Payloads())

    def takes(number: int) -> None:
        del number

    for codec in payloads.names:
        handler = handler_of(takes, payloads, codec)
        with pytest.raises(BadInput, match="do not fit"):
            handler.write(("one",), {})
        with pytest.raises(BadInput, match="do not fit"):
            handler.write((1, 2), {})
        with pytest.raises(BadInput, match="are allowed"):
            handler_of(any_value, payloads, codec).write(("x" * PAYLOAD_BYTES_MAX,), {})


def test_a_codec_of_ones_own_that_fails_refuses_the_call() -> None:
    def fail(data: bytes) -> bytes:
        raise OSError("the key is gone")

    payloads = Payloads()
    payloads.add("gone", 65, encode=fail, decode=fail)
    payloads.add("odd", 66, encode=lambda _: "text", decode=lambda _: "text")  # type: ignore[arg-type, return-value]
    payloads.add("fat", 67, encode=lambda data: data * 9, decode=flip)
    with pytest.raises(BadInput, match="cannot write the arguments of t: OSError: the key is gone"):
        handler_of(any_value, payloads, "gone").write((1,), {})
    with pytest.raises(BadInput, match="wrote str"):
        handler_of(any_value, payloads, "odd").write((1,), {})
    with pytest.raises(BadInput, match="read str"):
        handler_of(any_value, payloads).read(66, b"[1]")
    with pytest.raises(BadInput, match="in the codec fat"):
        handler_of(any_value, payloads, "fat").write(("x" * 100_000,), {})


def test_codecs_are_registered_by_name_and_number() -> None:
    payloads = sealing(Payloads())
    assert payloads.names == ["json", "msgpack", "sealed"]
    for name, number in [
        ("sealed", 65), ("other", 64), ("json", 65), ("Other", 65), (7, 65),
        ("other", OWN_MIN - 1), ("other", OWN_MAX + 1), ("other", True),
    ]:  # fmt: skip
        with pytest.raises(BadInput):
            payloads.add(name, number, encode=flip, decode=flip)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="two functions"):
        payloads.add("other", 65, encode=flip, decode=None)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no codec 'pickle'"):
        payloads.use("pickle")
    for bound in (-1, PAYLOAD_BYTES_MAX + 1, 1.5, True):
        with pytest.raises(BadInput, match="compress_above"):
            payloads.use(compress_above=bound)  # type: ignore[arg-type]
    app = Dueline("memory://")
    with pytest.raises(BadInput, match="no codec 'sealed'"):
        app.task(name="t", codec="sealed")


def test_people_are_shown_what_is_no_secret() -> None:
    assert as_json(JSON, b"[1]") == "[1]"
    assert as_json(MSGPACK, AS_MSGPACK.write([1, {"a": "b"}])) == '[1,{"a":"b"}]'
    assert as_json(2, zlib.compress(b'["abc"]')) == '["abc"]'
    with pytest.raises(BadInput, match="codec 64"):
        as_json(64, flip(b"\x00[1]"))


# --- through a store and a worker -------------------------------------------------------------


def app_on(url: str, folder: Path, *, codec: str = "json", sealed: bool = True) -> Dueline:
    app = Dueline(url.format(folder))
    if sealed:
        sealing(app.payloads)
    app.payloads.use(codec, compress_above=None if codec == "json" else 1000)
    return app


def row_of(app: Dueline, job_id: str) -> Row:
    row = app.store.find([bytes.fromhex(job_id)])[0]  # type: ignore[list-item]
    assert row is not None
    return row


@pytest.mark.parametrize("keep", [0, 60])
@pytest.mark.parametrize("url", URLS)
def test_jobs_of_several_codecs_run_side_by_side(url: str, keep: int, tmp_path: Path) -> None:
    app = app_on(url, tmp_path)
    app.queue("default", keep=keep)
    seen: list[object] = []

    @app.task(name="plain")
    def plain(value: str) -> None:
        seen.append(value)

    @app.task(name="packed", codec="msgpack")
    async def packed(value: bytes, *, note: str = "") -> None:
        seen.append((value, note))

    plain.enqueue("as JSON")
    app.payloads.use("sealed", compress_above=1000)
    one = plain.enqueue("sealed")
    plain.enqueue_many([("in bulk",), {"value": "by name"}])
    other = packed.enqueue(b"\xff", note="n" * 2000)
    assert (row_of(app, one.id).codec, row_of(app, other.id).codec) == (64, 3)
    assert b"sealed" not in row_of(app, one.id).body
    assert len(row_of(app, other.id).body) < 100
    app.payloads.use("msgpack")
    app.run_worker(burst=True, concurrency=1)
    expected = ["as JSON", "sealed", "in bulk", "by name", (b"\xff", "n" * 2000)]
    assert sorted(map(str, seen)) == sorted(map(str, expected))
    app.close()


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("keep", [0, 60])
def test_a_worker_that_does_not_know_the_codec_leaves_the_job(
    url: str, keep: int, tmp_path: Path
) -> None:
    app = app_on(url, tmp_path, sealed=False)
    app.queue("default", keep=keep)
    seen: list[int] = []

    @app.task(name="t")
    def t(value: int) -> None:
        seen.append(value)

    other = app_on(url, tmp_path)
    other.__dict__["store"] = app.store
    other.payloads.add("naked", 65, encode=naked, decode=lambda data: b"\0" + data)
    other.payloads.use("naked")
    job = other.task(name="t")(lambda value: seen.append(-value)).enqueue(7)
    for _ in range(3):  # it is claimed once
        app.run_worker(burst=True)
        row = row_of(app, job.id)
        assert (seen, row.errors, row.crashes, row.fence) == ([], 0, 0, 1)

    app.payloads.add("naked", 65, encode=naked, decode=lambda data: b"\0" + data)
    app.run_worker(burst=True)
    assert seen == [7]
    app.close()


def test_damaged_arguments_kill_the_job_at_once(tmp_path: Path) -> None:
    app = app_on(URLS[2], tmp_path, codec="msgpack")

    @app.task(name="t")
    def t(value: str) -> None:
        del value

    job = t.enqueue("x" * 5000)
    row = row_of(app, job.id)
    bomb = zlib.compress(b"\x91" + b" " * 10_000_000)
    app.store.add([row._replace(id=row.id[::-1], body=bomb)])  # type: ignore[arg-type]
    app.run_worker(burst=True)
    assert job.status == "done"
    dead = row_of(app, row.id[::-1].hex())
    assert dead.lane.queue == "default!dead"
    assert dead.error.startswith("BadInput: The arguments have more than")
    app.close()


READS_PLAIN_PICKLES = "rq_jobs.py"
"""Reads the arguments of RQ's jobs by an unpickler that makes plain values only."""


def test_nothing_in_the_package_can_unpickle() -> None:
    """The only bytes that choose code to run are those that no store holds."""
    refused = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
    for path in Path(dueline.__file__).parent.rglob("*.py"):
        source = path.read_text()
        if path.name == READS_PLAIN_PICKLES:
            assert source.count("pickle.") == source.count("(pickle.Unpickler):") == 1
            assert "def find_class(" in source
            continue
        if not any(name in source for name in refused):
            continue  # to parse all of them takes seconds
        for node in ast.walk(ast.parse(source)):
            names = []
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.partition(".")[0] for name in names} & refused, path
