"""Batches on each kind of store: every item is one job, counts are exact, results are in order."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from dueline import BadInput, Conflict, Dueline, JobFailed, NotFound, Retry
from dueline.api import batch_map
from dueline.api.batch_views import BatchCounts, BatchItem
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA

ON_ALL = pytest.mark.parametrize("url", [*IN_MEMORY, *LONG_ON_CASSANDRA], indirect=True)
WAIT_S = 60.0


class Squares:
    """An application whose task squares numbers, and fails for some until it is mended."""

    def __init__(self, url: str) -> None:
        self.app = Dueline(url)
        self.bad: set[int] = set()
        self.calls: Counter[int] = Counter()

        @self.app.task(name="square", retry=Retry(attempts=1))
        def square(number: int) -> int:
            self.calls[number] += 1
            if number in self.bad:
                raise ValueError(f"no {number}")
            return number * number

        self.square = square


@pytest.fixture
def squares(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Squares]:
    """Make the application; slices hold few items."""
    caplog.set_level(logging.CRITICAL, logger="dueline")
    monkeypatch.setattr(batch_map, "SLICE_ITEMS", 7)
    squares = Squares(url)
    yield squares
    squares.app.close()


@ON_ALL
def test_results_are_in_the_order_of_the_items(squares: Squares) -> None:
    batch = squares.square.map(range(30), name="b")
    assert (len(batch), batch.counts()) == (30, BatchCounts(items=30))
    with squares.app.worker():
        assert list(batch.results(WAIT_S)) == [number * number for number in range(30)]
    assert batch.wait(0, progress=False) == BatchCounts(items=30, done=30)
    assert squares.calls == dict.fromkeys(range(30), 1)


@ON_ALL
def test_failures_are_named_and_run_again(squares: Squares) -> None:
    squares.bad = {3, 17}
    batch = squares.square.map(range(20), name="b")
    with squares.app.worker():
        assert batch.wait(WAIT_S, progress=False) == BatchCounts(items=20, done=18, dead=2)
        failed = list(batch.failures())
        assert [(item.index, item.status, item.error) for item in failed] == [
            (3, "dead", "ValueError: no 3"), (17, "dead", "ValueError: no 17"),
        ]  # fmt: skip
        with pytest.raises(JobFailed, match="item 3 of the batch is dead: ValueError: no 3"):
            list(batch.results())
        answers: list[object] = list(batch.results(return_exceptions=True))
        assert [place for place, got in enumerate(answers) if isinstance(got, JobFailed)] == [3, 17]
        squares.bad = {17}
        assert batch.retry_failed() == 2
        assert batch.wait(WAIT_S, progress=False) == BatchCounts(items=20, done=19, dead=1)
        squares.bad = set()
        assert batch.retry_failed() == 1
        assert list(batch.results(WAIT_S)) == [number * number for number in range(20)]
    assert batch.counts() == BatchCounts(items=20, done=20)


@ON_ALL
def test_a_job_that_is_retried_counts_as_left(squares: Squares) -> None:
    squares.bad = {1}
    batch = squares.square.map(range(3), name="b")
    with squares.app.worker():
        batch.wait(WAIT_S, progress=False)
    batch.job(1).retry()
    assert batch.counts() == BatchCounts(items=3, done=2)
    assert batch.counts().left == 1


@ON_ALL
def test_waiting_jobs_are_cancelled(squares: Squares) -> None:
    batch = squares.square.map(range(20), name="b")
    assert batch.cancel().done == 20
    assert batch.wait(0, progress=False) == BatchCounts(items=20, cancelled=20)
    assert batch.cancel().done == 0
    assert {item.status for item in batch.failures()} == {"cancelled"}
    assert not squares.calls


@ON_ALL
def test_jobs_are_yielded_as_they_end(squares: Squares) -> None:
    squares.bad = {5}
    batch = squares.square.map(range(10), name="b")
    with squares.app.worker():
        items = list(batch.as_completed(WAIT_S))
    assert sorted(item.index for item in items) == list(range(10))
    assert {item.index: item.value for item in items} == {
        number: None if number == 5 else number * number for number in range(10)
    }
    with pytest.raises(JobFailed):
        next(item for item in items if item.index == 5).result()


@ON_ALL
def test_a_repeat_goes_on(squares: Squares) -> None:
    squares.square.map(range(10), name="b")
    with squares.app.worker():
        squares.app.batch("b").wait(WAIT_S, progress=False)
        batch = squares.square.map(range(25), name="b")
        assert list(batch.results(WAIT_S)) == [number * number for number in range(25)]
    assert squares.calls == dict.fromkeys(range(25), 1)


@ON_ALL
def test_items_with_keys_may_come_in_any_order(squares: Squares) -> None:
    squares.square.map([4, 2, 9, 2], name="b", key=str)
    batch = squares.square.map([9, 1, 4, 1, *range(20)], name="b", key=str)
    with squares.app.worker():
        results = list(batch.results(WAIT_S))
    assert results[:4] == [16, 4, 81, 1]
    assert sorted(results) == [number * number for number in range(20)]
    assert squares.calls == dict.fromkeys(range(20), 1)


@ON_ALL
def test_other_items_under_a_name_are_refused(squares: Squares) -> None:
    squares.square.map(range(10), name="b")
    with pytest.raises(BadInput, match="first 10 items are not those that are stored"):
        squares.square.map([*range(9), 99, 10], name="b")
    for fewer in ([], [99, 98]):  # which may be others, so they would be lost
        with pytest.raises(BadInput, match=f"has {len(fewer)} items, and 10 are stored"):
            squares.square.map(fewer, name="b")
    other = squares.app.task(name="other")(lambda number: number)
    with pytest.raises(Conflict, match="has jobs of the task square, not of other"):
        other.map([1], name="b")
    with pytest.raises(Conflict, match="have no keys, and this call has one"):
        squares.square.map([1], name="b", key=str)
    assert len(squares.app.batch("b")) == 10


@ON_ALL
def test_an_item_that_cannot_be_stored_is_named(squares: Squares) -> None:
    items: list[object] = list(range(20))
    items[11] = object()
    with pytest.raises(BadInput, match=r"^items\[11\]: .*object"):
        squares.square.map(items, name="b")
    assert len(squares.app.batch("b")) == 11
    items[11] = 11
    batch = squares.square.map(items, name="b")
    with squares.app.worker():
        assert list(batch.results(WAIT_S)) == [number * number for number in range(20)]
    assert squares.calls == dict.fromkeys(range(20), 1)


@ON_ALL
def test_results_that_are_not_kept_are_named(squares: Squares) -> None:
    squares.app.queue("default", keep=0)
    batch = squares.square.map(range(10), name="b")
    with squares.app.worker():
        assert batch.wait(WAIT_S, progress=False).done == 10
    with pytest.raises(NotFound, match="result of the item 0 of the batch b has expired, or is"):
        list(batch.results())


@ON_ALL
def test_large_results_are_in_order(squares: Squares) -> None:
    @squares.app.task(name="text")
    def text(number: int) -> str:
        return "x" * (number * 40)

    batch = text.map(range(20), name="t")
    with squares.app.worker():
        assert [len(value) for value in batch.results(WAIT_S)] == [n * 40 for n in range(20)]


@pytest.mark.parametrize("url", IN_MEMORY, indirect=True)
def test_coroutines_do_not_block(squares: Squares) -> None:
    async def run() -> list[object]:
        batch = await squares.square.amap(range(10), name="b")
        with squares.app.worker():
            counts = await batch.await_(WAIT_S, progress=False)
            results = [value async for value in batch.aresults()]
            items = [item.index async for item in batch.aas_completed()]
            failed = [item async for item in batch.afailures()]
        return [counts.done, results, sorted(items), failed, (await batch.acounts()).left]

    squares_of = [number * number for number in range(10)]
    assert asyncio.run(run()) == [10, squares_of, list(range(10)), [], 0]


@pytest.mark.parametrize("url", IN_MEMORY[:1], indirect=True)
def test_arguments_are_checked(squares: Squares) -> None:
    square = squares.square
    with pytest.raises(BadInput, match="must be an iterable"):
        square.map(5)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="must be an iterable"):
        square.map("abc")
    with pytest.raises(BadInput, match="`key` must be a function"):
        square.map([1], key="id")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="`name` must be a string of 1 to 200"):
        square.map([1], name="")
    with pytest.raises(BadInput, match=r"items\[1\]: The key of an item must be"):
        square.map([1, 2], key=lambda number: b"a" if number == 1 else None)  # type: ignore[arg-type, return-value]
    with pytest.raises(BadInput, match="does not take the option `unique`"):
        square.using(unique="{number}").map([1])
    with pytest.raises(NotFound, match="no batch 'none'"):
        squares.app.batch("none")
    assert len(square.map([])) == 0


@pytest.mark.parametrize("url", IN_MEMORY, indirect=True)
def test_calls_with_several_arguments(squares: Squares) -> None:
    @squares.app.task(name="add")
    def add(left: int, right: int = 1) -> int:
        return left + right

    batch = add.starmap([(1, 2), {"left": 5}, [7]])
    with squares.app.worker():
        assert list(batch.results(WAIT_S)) == [3, 6, 8]


@pytest.mark.parametrize("url", IN_MEMORY[:1], indirect=True)
def test_items_are_read_while_they_are_stored(squares: Squares) -> None:
    stored: list[int] = []

    def items() -> Iterator[int]:
        for number in range(30):
            if number == 20:
                stored.append(len(squares.app.batch("b")))
            yield number

    squares.square.map(items(), name="b")
    assert stored == [14]


@pytest.mark.parametrize("url", IN_MEMORY[:1], indirect=True)
def test_a_late_batch_says_what_is_left(squares: Squares) -> None:
    batch = squares.square.map(range(3), name="b")
    with pytest.raises(TimeoutError, match="The batch b has 3 of 3 jobs that have not ended"):
        batch.wait(0, progress=False)
    with pytest.raises(TimeoutError):
        list(batch.results(0))
    with pytest.raises(TimeoutError):
        list(batch.as_completed(0))


def test_an_item_knows_its_result() -> None:
    item = BatchItem(0, None, "done", 5)  # type: ignore[arg-type]
    assert item.result() == 5


@ON_ALL
def test_results_of_handles_are_read_together(squares: Squares) -> None:
    squares.bad = {4}
    jobs = squares.square.enqueue_many([(number,) for number in range(10)])
    batch = squares.square.map(range(10, 13), name="b")
    jobs += [batch.job(index) for index in range(3)]
    with pytest.raises(TimeoutError, match="13 of 13 jobs have not ended"):
        squares.app.gather(jobs, 0)
    with squares.app.worker():
        answers: list[object] = list(squares.app.gather(jobs, WAIT_S, return_exceptions=True))
        assert answers[:4] == [0, 1, 4, 9]
        assert answers[5:] == [number * number for number in range(5, 13)]
        assert isinstance(answers[4], JobFailed)
        with pytest.raises(JobFailed, match="is dead: ValueError: no 4"):
            squares.app.gather(jobs, WAIT_S)
        ended = list(squares.app.as_completed([*jobs, jobs[0]], WAIT_S))
    assert sorted(job.id for job in ended) == sorted(job.id for job in jobs)


@pytest.mark.parametrize("url", IN_MEMORY[:1], indirect=True)
def test_handles_are_checked(squares: Squares) -> None:
    job = squares.square.enqueue(1)
    other = Squares("memory://").square.enqueue(1)
    with pytest.raises(BadInput, match=r"jobs\[1\] is a str and not a job"):
        squares.app.gather([job, job.id])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"jobs\[0\] is a job of another application"):
        squares.app.gather([other])
    with pytest.raises(BadInput, match="`jobs` must be handles on jobs"):
        squares.app.gather(5)  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="No job"):
        squares.app.gather([squares.app.job("0" * 32)])
    assert squares.app.gather([]) == []


@pytest.mark.parametrize("url", IN_MEMORY, indirect=True)
def test_coroutines_gather(squares: Squares) -> None:
    async def run() -> tuple[list[int], int]:
        jobs = squares.square.enqueue_many([(number,) for number in range(5)])
        with squares.app.worker():
            results = await squares.app.agather(jobs, WAIT_S)
            return results, len([job async for job in squares.app.aas_completed(jobs)])

    assert asyncio.run(run()) == ([0, 1, 4, 9, 16], 5)


@pytest.mark.parametrize("url", IN_MEMORY, indirect=True)
def test_an_explanation_names_the_batch(squares: Squares) -> None:
    batch = squares.square.map(range(3), name="b")
    explained = batch.job(2).explain()
    assert str(explained).endswith("It is the item 2 of the batch b.")
    assert (explained.facts["batch"], explained.facts["batch_item"]) == ("b", 2)
