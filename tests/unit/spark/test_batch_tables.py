"""Results of batches as tables, where pyarrow and pandas are."""

from dueline import Dueline, Retry


def test_results_are_tables() -> None:
    app = Dueline("memory://")

    @app.task(name="place", retry=Retry(attempts=1))
    def place(number: int) -> dict[str, int]:
        if number == 1:
            raise ValueError("no")
        return {"number": number, "double": 2 * number}

    batch = place.map(range(3))
    with app.worker():
        table = batch.to_arrow()
    assert table.column_names == ["index", "status", "value", "error"]
    assert table["error"].to_pylist() == [None, "ValueError: no", None]
    frame = batch.to_pandas()
    assert list(frame.columns) == ["status", "error", "number", "double"]
    assert frame["double"].to_list()[::2] == [0, 4]
