"""The tables as Iceberg tables of a catalog, over the same Parquet files.

A publication compares the files that a catalog names with those of the Delta table, and commits the
difference at once. No row is written. Metrics are kept only of the columns whose bounds Delta's log
holds, too: those of others would hold arguments and errors.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties
from pyiceberg.transforms import DayTransform

from dueline.core.errors import Conflict
from dueline.spark.pipeline.delta import DAY, Place, Table
from dueline.spark.pipeline.tables import BRONZE, DESIGNS, open_table

NAMESPACE: Final = "dueline"
VERSION: Final = "dueline.delta-version"
"""Property of a snapshot: the version of the Delta table that it shows."""

FOLDER: Final = "_iceberg"
"""Folder of a lake for what Iceberg writes: `vacuum` deletes what is in a table's own folder."""


class Published(NamedTuple):
    """What a publication changed in a table: numbers of files and rows that it has now."""

    table: str
    added: int
    removed: int
    rows: int


def publish(lake: Place, catalog: Catalog, namespace: str = NAMESPACE) -> list[Published]:
    """Make a catalog show the tables of a lake as they are now.

    Args:
        lake: The tables. Paths in the catalog are absolute.
        catalog: The catalog, as `pyiceberg.catalog.load_catalog` returns it.
        namespace: Name in the catalog for all tables; it is created.

    Returns:
        What was changed in each table that exists.

    Raises:
        NotFound: The lake has no tables.
        Conflict: Another process publishes the same table. Repeat the call.
    """
    open_table(lake, BRONZE.name).delta()
    catalog.create_namespace_if_not_exists(namespace)
    tables = (open_table(lake, name) for name in DESIGNS)
    return [_publish(lake, table, catalog, namespace) for table in tables if table.exists()]


def _publish(lake: Place, table: Table, catalog: Catalog, namespace: str) -> Published:
    shown = _iceberg(lake, table, catalog, f"{namespace}.{table.design.name}")
    wanted = {f"{_address(table.place)}/{file.path}" for file in table.files()}
    last = shown.current_snapshot()
    held = {task.file.file_path: task.file for task in shown.scan().plan_files()} if last else {}
    added, removed = sorted(wanted - held.keys()), sorted(held.keys() - wanted)
    if added or removed:
        with _conflicts(table), shown.transaction() as change:
            properties = {VERSION: str(table.delta().version())}
            with change.update_snapshot(snapshot_properties=properties).overwrite() as files:
                for path in removed:
                    files.delete_data_file(held[path])
                for made in parquet_files_to_data_files(
                    shown.io, change.table_metadata, iter(added)
                ):
                    files.append_data_file(made)
    return Published(table.design.name, len(added), len(removed), table.rows())


def _iceberg(lake: Place, table: Table, catalog: Catalog, name: str) -> IcebergTable:
    """Return the table of a catalog; it is created if it does not exist."""
    if catalog.table_exists(name):
        return catalog.load_table(name)
    design = table.design
    metrics = {f"write.metadata.metrics.column.{column}": "full" for column in design.ranged}
    place = lake.below(FOLDER).below(design.name)
    with catalog.create_table_transaction(
        name, design.inside, location=_address(place),
        properties={"write.metadata.metrics.default": "none", **metrics},
    ) as made:  # fmt: skip
        names = made.table_metadata.schema().name_mapping.model_dump_json()
        made.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})
        if design.instant:
            with made.update_spec() as partition:
                partition.add_field(design.instant, DayTransform(), DAY)
    return catalog.load_table(name)


def _address(place: Place) -> str:
    return f"file://{place.root}" if place.is_local else place.root


@contextmanager
def _conflicts(table: Table) -> Iterator[None]:
    try:
        yield
    except (CommitFailedException, ValidationException) as error:
        raise Conflict(
            f"Another process published {table.design.name} at the same time.",
            hint="Run it again.",
        ) from error
