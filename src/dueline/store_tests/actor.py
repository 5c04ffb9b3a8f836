"""A process that the process laws start.

`python -m dueline.store_tests.actor URL ACT ARGUMENTS` opens the store, says that it is ready,
waits for a line on its standard input (the barrier), then acts and prints a line of JSON for
each thing that was acknowledged. ARGUMENTS are a JSON object.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import count

from dueline.api.connect import open_store
from dueline.core.store import Commit, Drop, Group, Put, Store
from dueline.store_tests.calls import (
    NOW_US,
    ROUNDS_MAX,
    claim,
    count_up,
    id_of,
    lane_of,
    new_job,
    new_jobs,
    row_of,
    row_with,
    token_of,
)

READY = "ready"
PRIORITIES = 3
RESULTS = "results"

Act = Callable[[Store, Mapping[str, int]], Iterator[object]]


def claim_until_empty(store: Store, arguments: Mapping[str, int]) -> Iterator[object]:
    """Claim from the lanes of `PRIORITIES` until nothing is left; yield each job's id."""
    lanes = [lane_of(priority=priority) for priority in range(PRIORITIES)]
    first = 1 + arguments["number"] * ROUNDS_MAX
    for token in range(first, first + ROUNDS_MAX):
        jobs = claim(store, *lanes, limit=arguments["limit"], token=token).jobs
        yield from (int.from_bytes(job.id) for job in jobs)
        if not jobs:
            break


def drop_each(store: Store, arguments: Mapping[str, int]) -> Iterator[object]:
    """Finish the jobs that one token holds, one by one; yield those that were ended."""
    for number in range(1, arguments["jobs"] + 1):
        job = new_job(number)._replace(token=token_of(arguments["token"]))
        if store.settle([Drop(job)])[0]:
            yield number


def add_each(store: Store, arguments: Mapping[str, int]) -> Iterator[object]:
    """Add the jobs that the others add too, in small batches; yield the results."""
    jobs = new_jobs(arguments["jobs"])
    for start in range(0, len(jobs), 10):
        yield list(store.add(jobs[start : start + 10]))


def count_record(store: Store, arguments: Mapping[str, int]) -> Iterator[object]:
    """Increment a record by conditional writes."""
    count_up(store, times=arguments["times"], writer=arguments["number"])
    yield arguments["times"]


def write_for_ever(store: Store, _arguments: Mapping[str, int]) -> Iterator[object]:
    """Make every kind of write until killed; yield each acknowledged write.

    Round n adds job 3n and job 3n + 1, drops 3n + 1 again, puts record n and appends row n;
    on a transactional store job 3n + 2, record and row 1,000,000 + n come as one group.
    """
    for number in count():
        store.add([new_job(3 * number), new_job(3 * number + 1)])
        yield ["added", number]
        assert store.settle([Drop(new_job(3 * number + 1))])[0]
        yield ["dropped", number]
        assert store.commit(RESULTS, [Put(str(number), token_of(1), b"")])
        yield ["put", number]
        store.append([row_of(number)])
        yield ["appended", number]
        if store.transactional:
            assert store.together([write_group(number)])[0]
            yield ["together", number]


def write_group(number: int) -> Group:
    """Return the group of one round of `write_for_ever`."""
    return Group(
        commits=[Commit(RESULTS, [Put(str(1_000_000 + number), token_of(1), b"")])],
        jobs=[new_job(3 * number + 2)],
        rows=[row_of(1_000_000 + number)],
    )


def read_claim(store: Store, arguments: Mapping[str, int]) -> Iterator[object]:
    """Yield the fence of a row and the time until its lease ends."""
    row = row_with(store, id_of(arguments["job"]))
    yield [row.fence, row.at_us - NOW_US]


ACTS: Mapping[str, Act] = {
    act.__name__: act
    for act in (claim_until_empty, drop_each, add_each, count_record, write_for_ever, read_claim)
}


def main() -> None:
    """Run the act that the command line names."""
    url, act, arguments = sys.argv[1:]
    store = open_store(url)
    store.clock_us()
    print(READY, flush=True)  # noqa: T201  the pipe to the parent
    if sys.stdin.readline():
        for line in ACTS[act](store, json.loads(arguments)):
            print(json.dumps(line), flush=True)  # noqa: T201  the pipe to the parent
    store.close()


if __name__ == "__main__":
    main()
