"""`dueline pipeline publish`: show the tables in a catalog."""

from typing import Annotated

import typer

from dueline.cli.options import option
from dueline.cli.output import Entry
from dueline.cli.pipeline_options import OUT, OutOption, StorageOption, need, output_of, place
from dueline.core.errors import ConfigError


def publish(
    context: typer.Context,
    *,
    catalog: Annotated[str, option("NAME", "Catalog of PyIceberg's configuration.", "--catalog")],
    namespace: Annotated[str, option("NAME", "Namespace of the tables.")] = "dueline",
    out: OutOption = OUT,
    storage_options: StorageOption = None,
) -> None:
    """Show the tables as Iceberg tables of a catalog.

    The catalog names the same Parquet files: no row is copied. It is one of PyIceberg, from
    `.pyiceberg.yaml` or the environment. Run it after `run`, `optimize` and `forget`.

    Example: dueline pipeline publish --catalog shop --out lake
    """
    need("pyarrow", "deltalake", "pyiceberg")
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415  (may not be installed)

    from dueline.spark.pipeline import iceberg  # noqa: PLC0415  (may not be installed)

    try:
        loaded = load_catalog(catalog)
    except ValueError as error:
        raise ConfigError(
            f"PyIceberg does not know the catalog {catalog}: {error}",
            hint="Set `catalog:` in .pyiceberg.yaml, or PYICEBERG_CATALOG__NAME__URI.",
        ) from error
    published = iceberg.publish(place(out, storage_options), loaded, namespace)
    entries: list[Entry] = [table._asdict() for table in published]
    output_of(context).entries(entries, ("table", "added", "removed", "rows"), out=out)
