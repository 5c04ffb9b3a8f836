"""Values of numpy, pandas, pyarrow and polars as arguments and results."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pandas")
pytest.importorskip("polars")

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa

from dueline import BadInput, Dueline, DurableContext

FRAME = pd.DataFrame({
    "n": [1, 2, 3], "x": [0.5, float("nan"), 2.0], "when": pd.date_range("2027-01-01", periods=3),
    "name": ["a", None, "c"],
})  # fmt: skip


def run(app: Dueline, task: Any, *args: object) -> Any:
    """Run one job, and return its result."""
    job = task.enqueue(*args)
    app.run_worker(burst=True)
    return job.result(timeout=0)


@pytest.fixture(params=["json", "msgpack"])
def app(request: pytest.FixtureRequest) -> Dueline:
    """Return an application, for each form of arguments."""
    app = Dueline("memory://")
    app.payloads.use(request.param)
    return app


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int64(3), 3), (np.uint8(3), 3), (np.float64(0.5), 0.5), (np.float32(0.5), 0.5),
        (np.bool_(1), True), (np.str_("a"), "a"), (pd.NA, None), (pd.NaT, None),
        ([np.int32(1), {"a": np.float16(2.0)}], [1, {"a": 2.0}]),
    ],
)  # fmt: skip
def test_scalars_become_plain_values_without_annotations(
    app: Dueline, value: object, plain: object
) -> None:
    @app.task(name="echo")
    def echo(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        assert type(value) is type(plain)
        return value

    @app.task(name="give")
    def give() -> Any:
        return value

    assert run(app, echo, value) == plain
    assert run(app, give) == plain


def test_scalars_fit_plain_annotations_and_their_own(app: Dueline) -> None:
    @app.task(name="mean")
    def mean(values: list[float], weight: int, day: date) -> float:
        assert day == date(2027, 1, 1)
        return np.float64(sum(values) * weight)  # type: ignore[no-any-return]

    @app.task(name="exact")
    def exact(n: np.int64, at: pd.Timestamp, wait: timedelta) -> datetime:
        assert type(n) is np.int64
        assert type(at) is pd.Timestamp
        assert wait == timedelta(seconds=2)
        return at  # type: ignore[no-any-return]

    result = run(app, mean, [np.float32(0.5), 1.0], np.int64(3), np.datetime64("2027-01-01"))
    assert (result, type(result)) == (4.5, float)
    at = pd.Timestamp("2027-01-01T10:00", tz="UTC")
    assert run(app, exact, np.int64(3), at, pd.Timedelta(seconds=2)) == datetime(
        2027, 1, 1, 10, tzinfo=UTC
    )


def test_arrays_and_frames_come_as_they_went(app: Dueline) -> None:
    @app.task(name="array")
    def array(value: np.ndarray, more: npt.NDArray[np.float64]) -> np.ndarray:
        assert isinstance(value, np.ndarray)
        return value * 2 + more.sum()

    @app.task(name="frame")
    def frame(value: pd.DataFrame) -> pd.DataFrame:
        return value

    @app.task(name="series")
    def series(value: pd.Series) -> pd.Series:
        return value

    @app.task(name="table")
    def table(value: pa.Table) -> pa.Table:
        return value

    @app.task(name="batch")
    def batch(value: pa.RecordBatch) -> pa.RecordBatch:
        return value

    @app.task(name="polar")
    def polar(value: pl.DataFrame) -> pl.DataFrame:
        return value

    given = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert run(app, array, given, np.zeros(2)).tolist() == [[0, 2, 4], [6, 8, 10]]
    pd.testing.assert_frame_equal(run(app, frame, FRAME), FRAME)
    pd.testing.assert_series_equal(run(app, series, FRAME["x"]), FRAME["x"])
    assert run(app, table, pa.table({"a": [1, 2]})) == pa.table({"a": [1, 2]})
    rows = pa.record_batch({"a": [1, 2]})
    assert run(app, batch, rows) == rows
    assert run(app, polar, pl.DataFrame({"a": [1]})).equals(pl.DataFrame({"a": [1]}))


def test_frames_keep_their_type_without_annotations_and_within_others(app: Dueline) -> None:
    @app.task(name="loose")
    def loose(value, *more, **named):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN202
        assert isinstance(value, pd.DataFrame)
        assert isinstance(more[0], np.ndarray)
        assert isinstance(named["name"]["a"], np.ndarray)
        return {"frame": value}

    @app.task(name="within")
    def within(value: dict[str, Any], *, frames: list[pd.DataFrame]) -> dict[str, pd.DataFrame]:
        assert isinstance(value["a"], np.ndarray)
        return {"last": frames[-1]}

    job = loose.enqueue(FRAME, np.zeros(1), name={"a": np.zeros(1)})
    other = within.enqueue({"a": np.zeros(1)}, frames=[FRAME])
    app.run_worker(burst=True)
    pd.testing.assert_frame_equal(job.result(timeout=0)["frame"], FRAME)
    pd.testing.assert_frame_equal(other.result(timeout=0)["last"], FRAME)


def test_what_does_not_fit_an_annotation_is_refused_at_the_call(app: Dueline) -> None:
    @app.task(name="frame")
    def frame(value: pd.DataFrame) -> None: ...
    @app.task(name="number")
    def number(value: int) -> None: ...

    wrong: list[tuple[Any, Any, str]] = [
        (frame, pd.Series([1]), "Expected `pandas.DataFrame`, got `pandas.Series`"),
        (frame, [1], "Expected `pandas.DataFrame`, got `list`"),
        (number, np.float64(0.5), "Expected `int`, got `float`"),
        (number, np.complex128(1j), "numpy.complex128 is unsupported"),
        (frame, np.array([object()]), "this numpy.ndarray cannot be stored"),
        (number, np.float64("nan"), "NaN"),
    ]
    for task, value, text in wrong:
        with pytest.raises(BadInput, match=text):
            task.enqueue(value)


def test_durable_functions_record_them() -> None:
    app = Dueline("memory://")

    @app.durable(name="total")
    def total(ctx: DurableContext, value: pd.DataFrame) -> float:
        doubled = ctx.step(double, value)
        return doubled["n"].sum()  # type: ignore[no-any-return]

    total_ = run(app, total, FRAME)
    assert (total_, type(total_)) == (12, float)


def double(value: pd.DataFrame) -> pd.DataFrame:
    """Double the numbers."""
    assert isinstance(value, pd.DataFrame)
    return value.assign(n=value["n"] * 2)


def test_a_damaged_frame_is_an_error_that_names_its_type() -> None:
    app = Dueline("memory://")

    @app.task(name="loose")
    def loose(value: Any) -> None: ...

    with pytest.raises(BadInput, match=r"damaged `pandas\.DataFrame`"):
        loose.enqueue({"$value": "pandas.DataFrame", "data": "AAAA"})
    loose.enqueue({"$value": "os.system", "data": "AAAA"})  # no name selects other code
