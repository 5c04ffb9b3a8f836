"""Writers as Spark makes them, driven by hand, and handlers that note their calls."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dueline import Dueline

COLUMNS = {"job_id": "string", "payload": "string"}


@pytest.fixture
def ran() -> list[int]:
    """Note which numbers were run."""
    return []


@pytest.fixture
def app(tmp_path: Path, ran: list[int]) -> Iterator[Dueline]:
    """Make an application that notes what it runs."""
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")

    @app.task(name="note", queue="mail")
    def note(number: int) -> None:
        ran.append(number)

    app.queues.engine.catalog.configure("mail", shards=3)
    yield app
    app.close()


def writer_of(app: Dueline, *, overwrite: bool = False, **options: Any) -> Any:
    """Make the writer that Spark would make."""
    from dueline.spark.reading import schemas
    from pyspark_dueline import DefaultSource

    texts = {key: str(value) for key, value in options.items()}
    source = DefaultSource({"store": app.url, "queue": "mail", "task": "note"} | texts)
    return source.writer(schemas.struct_of(COLUMNS), overwrite)


def batches_of(numbers: Sequence[int], size: int = 7) -> Iterator[Any]:
    """Make batches of rows, each naming its job."""
    import pyarrow as pa

    for start in range(0, len(numbers), size):
        batch = numbers[start : start + size]
        rows = [{"job_id": f"n{number}", "payload": f"[{number}]"} for number in batch]
        yield pa.RecordBatch.from_pylist(rows)


def dying(numbers: Sequence[int]) -> Iterator[Any]:
    """Make batches, and fail at the end."""
    yield from batches_of(numbers)
    raise OSError("the executor dies")


def living(app: Dueline) -> int:
    """Count the rows of the queue."""
    return len(list(app.queues.engine.jobs_of("mail")))


NOW_US = 1_800_000_000_000_000


def new_jobs_of(rows: list[dict[str, Any]], **form: Any) -> Any:
    """Convert rows to new jobs, each a value with their fields."""
    return [SimpleNamespace(**row) for row in new_batch_of(rows, **form).to_pylist()]


def new_batch_of(rows: list[dict[str, Any]], **form: Any) -> Any:
    """Convert rows to a batch of new jobs."""
    import pyarrow as pa

    from dueline.spark.writing.rows_to_jobs import Form, check_columns, new_jobs

    batch = pa.RecordBatch.from_pylist(rows)
    made = Form(**({"queue": "mail", "task": "send"} | form))
    check_columns(batch.schema.names, made)
    return new_jobs(batch, made, now_us=NOW_US)


def notes(folder: Path) -> Counter[int]:
    """Count how often a handler was called for each number."""
    return Counter(int(note.name.split(".")[0]) for note in folder.glob("*.ran"))


def noting(folder: Path) -> Callable[[int], None]:
    """Make what leaves a file for each call of a handler."""

    def note(number: int) -> None:
        import os

        (folder / f"{number}.{os.getpid()}.{os.urandom(8).hex()}.ran").touch()

    return note
