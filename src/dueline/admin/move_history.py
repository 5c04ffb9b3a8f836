"""The history of moved jobs, which the new store gets too (rule X12)."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import repeat
from typing import Final

from dueline.admin.move_portions import PARTITION, Portion
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.job import JobId
from dueline.core.pagination import parts_of, records_in
from dueline.core.queue_settings import shard_of
from dueline.core.store import Row, Store
from dueline.jobs.history import HISTORY_SUFFIX, events
from dueline.jobs.history_batch import ids_in

_PAGE: Final = 500
_PORTIONS_A_PAGE: Final = 50
_TOKEN_DIGITS: Final = 32


class JobSet:
    """A set of jobs, in 8 bytes each; of 1,000,000, none is mistaken for another one."""

    def __init__(self, jobs: Iterable[str]) -> None:
        self._marks = array("Q", sorted(array("Q", map(_mark, jobs))))

    def __contains__(self, job: str) -> bool:
        mark = _mark(job)
        place = bisect_left(self._marks, mark)
        return place < len(self._marks) and self._marks[place] == mark

    def __len__(self) -> int:
        return len(self._marks)


def _mark(job: str) -> int:
    return int.from_bytes(blake2b(job.encode(), digest_size=8).digest())


def moved_jobs(target: Store, since_us: int) -> Iterator[tuple[str, str]]:
    """Yield the jobs that were moved to a store since a time of that store.

    Each has the name of its queue, if its portion had no other; else "".
    """
    for record in records_in(target, PARTITION, page_size=_PORTIONS_A_PAGE):
        if len(record.key) == _TOKEN_DIGITS:  # others say how far a move or an import is
            portion = decode(record.value, Portion)
            if portion.now_us >= since_us:
                queue = portion.shapes[0][0] if len(portion.shapes) == 1 else ""
                yield from zip(ids_in(portion.ids), repeat(queue), strict=False)


def copy_history(source: Engine, target: Engine, moved: JobSet) -> int:
    """Copy the events of moved jobs; return how many. A repeat changes nothing (rule F3)."""
    count = 0
    for page in parts_of(_copies(source, target, moved), _PAGE):
        target.store.append(page)
        count += len(page)
    return count


def _copies(source: Engine, target: Engine, moved: JobSet) -> Iterator[Row]:
    for queue in source.catalog.names():
        settings = target.catalog.settings(queue)
        if not len(moved) or settings.history == "off":
            continue
        for shard in range(source.catalog.settings(queue).shards_read):
            for row_id, event in events(source.store, queue, shard):
                if event.job in moved:
                    job_id = JobId(bytes.fromhex(event.job))
                    place = shard_of(job_id, settings.shards)
                    stream = queue + HISTORY_SUFFIX
                    yield Row(stream, place, event.ended_us, row_id, encode(event))
