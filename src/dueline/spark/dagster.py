"""Dagster: the pipeline's tables as assets, and the audit as a check of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster

from dueline.core.errors import DuelineError
from dueline.spark.pipeline.engine import STEPS
from dueline.spark.pipeline.updates import TRANSIENT, update_tables

AUDIT = "audit"


def table_assets(
    store: str,
    lake: str,
    *,
    name: str = "dueline_tables",
    key_prefix: Sequence[str] = ("dueline",),
    queues: Sequence[str] = (),
    audit: bool = True,
    engine: str = "duckdb",
    storage_options: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401  (those of `multi_asset`)
) -> dagster.AssetsDefinition:
    """Return the assets bronze, silver and gold, which are brought up to date together.

    The audit is a check of bronze. If it finds anything, the run fails, and is not repeated; nor is
    one that a repetition cannot repair. Other errors, such as a store that is down, are left to the
    `retry_policy`.

    Example: `Definitions(assets=[table_assets("sqlite:////srv/jobs.db", "/srv/lake")])`.

    Args:
        store: URL of the store.
        lake: Folder or address of the tables.
        name: Name of the step.
        key_prefix: Prefix of the assets' keys.
        queues: Names of queues; all if empty.
        audit: Whether to audit the queues.
        engine: duckdb, or spark.
        storage_options: Options of the object store.
        **options: Options of `dagster.multi_asset`, such as `group_name` and `retry_policy`.
    """
    keys = {step: dagster.AssetKey([*key_prefix, step]) for step in STEPS}
    before = dict(zip(STEPS[1:], STEPS, strict=False))
    specs = [
        dagster.AssetSpec(key, deps=[keys[before[step]]] if step in before else [])
        for step, key in keys.items()
    ]
    checks = [dagster.AssetCheckSpec(AUDIT, asset=keys["bronze"])] if audit else []

    @dagster.multi_asset(name=name, specs=specs, check_specs=checks, **options)
    def tables(context: dagster.AssetExecutionContext) -> Iterator[Any]:
        try:
            updated = update_tables(
                store, lake, queues=queues, audit=audit, engine=engine,
                storage_options=storage_options, say=context.log.info,
            )  # fmt: skip
        except DuelineError as error:
            if isinstance(error, TRANSIENT):
                raise
            raise dagster.Failure(str(error), allow_retries=False) from error
        for step in updated.steps:
            counts = {"dagster/partition_row_count": step.rows, "files": step.files}
            yield dagster.MaterializeResult(asset_key=keys[step.name], metadata=counts)
        if audit:
            yield dagster.AssetCheckResult(
                passed=updated.is_clean, check_name=AUDIT, asset_key=keys["bronze"],
                metadata=updated.summary(),
            )  # fmt: skip
        if not updated.is_clean:
            raise dagster.Failure(f"The audit failed: {updated.summary()}", allow_retries=False)

    return tables
