"""The tables of Spark show the columns of the history."""

from dueline.core.attempt import SHOWN

OF_ROWS = {"queue", "shard", "at", "id"}


def test_each_column_of_the_history_is_shown() -> None:
    from dueline.spark.pipeline.tables import BRONZE
    from dueline.spark.reading.schemas import COLUMNS

    assert set(BRONZE.shape.names) == {*SHOWN, *OF_ROWS, "day", "batch"}
    assert set(COLUMNS["attempts"]) == {*SHOWN, *OF_ROWS} - {"limits", "again"}
    assert set(COLUMNS["events"]) <= {*SHOWN, *OF_ROWS, "kind", "detail"}
