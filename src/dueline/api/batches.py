"""The methods of an application that find batches."""

from collections.abc import Iterator
from typing import Any

from dueline.api.batch import Batch
from dueline.api.connection import Connection
from dueline.batches import records
from dueline.core.errors import NotFound
from dueline.jobs.queue import Queues


def batch_named(queues: Queues, name: str) -> records.Batch:
    """Return the batch of a name.

    Raises:
        BadInput: The name is invalid.
        NotFound: There is no such batch.
    """
    batch = records.named(queues.engine.store, records.check_name(name))
    if batch is None:
        raise NotFound(
            f"There is no batch {name!r}.",
            hint="See `dueline batches list`; a batch is known for 90 days after its last item.",
        )
    return batch


class BatchMethods(Connection):
    """The methods of an application that find batches."""

    def batch(self, name: str) -> Batch[Any]:
        """Return a handle on a batch that `task.map` stored, in any process.

        Args:
            name: Name of the batch.

        Raises:
            NotFound: There is no such batch.
            BadInput: The name is invalid.
        """
        return self._handle(batch_named(self.queues, name))

    def batches(self) -> Iterator[Batch[Any]]:
        """Yield the batches that are known, in the order of their names."""
        for batch in records.listed(self.queues.engine.store):
            yield self._handle(batch)

    def _handle(self, batch: records.Batch) -> Batch[Any]:
        handler = self._tasks.get(batch.task)
        kind = Any if handler is None else handler.result_kind
        return Batch(batch, self.queues, self._clock, kind, self._tasks)
