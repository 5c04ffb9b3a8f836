"""Airflow 3: a task that brings the pipeline's tables up to date, and audits the queues."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from dueline.core.errors import DuelineError
from dueline.spark.pipeline.updates import TRANSIENT, update_tables


class UpdateTables(BaseOperator):
    """Bring the tables of a lake up to date; fail if the audit finds anything.

    What a repetition cannot repair, a failed audit too, fails the task at once. After another
    error, such as a store that is down, Airflow repeats the task as its `retries` say.

    Args:
        store: URL of the store; a template.
        lake: Folder or address of the tables; a template.
        queues: Names of queues; all if empty; a template.
        audit: Whether to audit the queues.
        engine: duckdb, or spark.
        storage_options: Options of the object store; a template.
        **options: Options of every operator, such as `task_id`.

    Returns:
        The task pushes `Updated.summary()`: the rows of each step, the verdict of each queue, and
        the number of findings.
    """

    template_fields: ClassVar[Sequence[str]] = ("store", "lake", "queues", "storage_options")

    def __init__(
        self,
        *,
        store: str,
        lake: str,
        queues: Sequence[str] = (),
        audit: bool = True,
        engine: str = "duckdb",
        storage_options: Mapping[str, str] | None = None,
        **options: Any,  # noqa: ANN401  (see above)
    ) -> None:
        super().__init__(**options)
        self.store = store
        self.lake = lake
        self.queues = queues
        self.audit = audit
        self.engine = engine
        self.storage_options = storage_options

    def execute(self, context: object) -> dict[str, Any]:  # noqa: ARG002  (Airflow passes it)
        """Run the task."""
        try:
            updated = update_tables(
                self.store, self.lake, queues=self.queues, audit=self.audit, engine=self.engine,
                storage_options=self.storage_options, say=self.log.info,
            )  # fmt: skip
        except DuelineError as error:
            if isinstance(error, TRANSIENT):
                raise
            raise AirflowFailException(str(error)) from error
        summary = updated.summary()
        if not updated.is_clean:
            raise AirflowFailException(f"The audit failed: {summary}")
        return summary
