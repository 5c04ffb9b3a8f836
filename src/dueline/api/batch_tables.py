"""Results of a batch as tables."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from dueline.api.batch_views import BatchItem
from dueline.core.errors import BadInput
from dueline.core.extras import extra

with extra("arrow"):
    pa = import_module("pyarrow")


def table_of(items: Iterable[BatchItem[Any]]) -> Any:  # noqa: ANN401  (a library without types)
    """Return ended jobs as a table.

    Raises:
        BadInput: The results have no common type.
    """
    rows = [(item.index, item.status, item.value, item.error or None) for item in items]
    index, status, value, error = zip(*rows, strict=True) if rows else ((), (), (), ())
    try:
        values = pa.array(value)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as raised:
        raise BadInput(
            f"The results have no common type: {raised}.", hint="Read them with results()."
        ) from raised
    return pa.table(
        {
            "index": pa.array(index, pa.int64()),
            "status": pa.array(status, pa.string()),
            "value": values,
            "error": pa.array(error, pa.string()),
        }
    )


def frame_of(table: Any) -> Any:  # noqa: ANN401  (libraries without types)
    """Return the table of `table_of` as a DataFrame, with a column for each key of dicts."""
    with extra("pandas", is_package=True):
        import_module("pandas")
    if pa.types.is_struct(table["value"].type):
        place = table.column_names.index("value")
        names = [field.name for field in table["value"].type]
        parts = dict(zip(names, table["value"].combine_chunks().flatten(), strict=True))
        table = table.remove_column(place)
        for name, column in parts.items():
            taken = name in table.column_names
            table = table.append_column(f"value.{name}" if taken else name, column)
    return table.to_pandas().set_index("index")
