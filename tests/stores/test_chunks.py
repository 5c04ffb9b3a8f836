"""Partial results: chunks that a handler emits, on each store that several processes can open."""

import asyncio
import threading
from typing import Any, NoReturn

import pytest

from dueline import BadInput, Chunk, Context, Dueline, Job, NotFound, Retry

WORDS = [f"word {number}" for number in range(40)]


def test_a_reader_follows_a_job_and_goes_on_after_any_chunk(url: str) -> None:
    app = Dueline(url)
    seen: list[Chunk] = []
    is_read = threading.Event()

    @app.task(name="answer")
    def answer(ctx: Context, words: list[str]) -> int:
        for word in words[:10]:
            ctx.emit(word)
        assert is_read.wait(20), "the reader sees chunks while the handler runs"
        for word in words[10:]:
            ctx.emit({"word": word, "n": len(word)})
        return len(words)

    job = answer.enqueue(WORDS)

    def read() -> None:
        for chunk in job.chunks():
            seen.append(chunk)
            if len(seen) == 10:
                is_read.set()

    reader = threading.Thread(target=read)
    reader.start()
    app.run_worker(concurrency=1, burst=True)
    reader.join(20)
    assert not reader.is_alive(), "the reader ends with the job"
    assert [chunk.value for chunk in seen[:10]] == WORDS[:10]
    assert [chunk.value["word"] for chunk in seen[10:]] == WORDS[10:]
    assert {chunk.attempt for chunk in seen} == {1}
    reading = Dueline(url)
    other = reading.job(job.id)
    for place in range(0, len(seen), 7):
        assert list(other.chunks(after=seen[place].id)) == seen[place + 1 :]
    assert list(other.chunks(after=seen[-1].id)) == []
    reading.close()
    app.close()


def test_a_retry_begins_anew(url: str) -> None:
    app = Dueline(url)

    @app.task(name="answer", retry=Retry.fixed(0, attempts=3))
    async def answer(ctx: Context) -> None:
        for number in range(3 * ctx.attempt):
            ctx.emit(number)
        if ctx.attempt < 3:
            raise ValueError

    job = answer.enqueue()
    app.run_worker(concurrency=1, burst=True)

    async def read(after: str | None = None) -> list[tuple[int, int]]:
        return [(chunk.attempt, chunk.value) async for chunk in job.chunks(after=after)]

    last = [(3, number) for number in range(9)]
    assert asyncio.run(read()) == last, "only the chunks of the last attempt are kept"
    assert asyncio.run(read("1-2")) == last, "a reader of an earlier attempt begins anew"
    app.close()


def test_a_dead_job_ends_its_chunks(url: str) -> None:
    app = Dueline(url)

    @app.task(name="answer", retry=Retry(attempts=1))
    def answer(ctx: Context) -> NoReturn:
        ctx.emit("so far")
        raise ValueError

    job: Job[Any] = answer.enqueue()
    app.run_worker(concurrency=1, burst=True)
    assert [chunk.value for chunk in job.chunks(timeout=20)] == ["so far"]
    assert job.status == "dead"
    app.close()


def test_readers_wait_and_are_refused(url: str) -> None:
    app = Dueline(url)

    @app.task(name="answer")
    def answer() -> None: ...

    job = answer.enqueue()
    with pytest.raises(TimeoutError):
        next(job.chunks(timeout=0))
    for bad in ("", "7", "1-x", "1-2-3", 5):
        with pytest.raises(BadInput):
            job.chunks(after=bad)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        next(app.job("0" * 32).chunks(timeout=5))
    app.close()
