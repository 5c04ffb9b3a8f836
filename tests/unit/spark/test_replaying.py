"""Jobs of the past that are enqueued again."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake")


from dueline import Cancel, Dueline, Retry
from dueline.api.raw_queue import RawQueue
from dueline.core.attempt import ARGUMENTS_BYTES_MAX
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import Job
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.history_batch import unbundled
from dueline.jobs.queue import EnqueueRequest
from dueline.spark.pipeline.replay import KEEP_US
from dueline.tasks.hooks import Hooks
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.queues import queues_on
from tests.harness.spark.audits import columns_of
from tests.harness.spark.tables import archive_rows, made, quiet
from tests.harness.world import EVERY_KIND, store_on

SECRET = 90


class Theatre:
    """A store whose queue `mail` keeps arguments, and `bills` does not; and its tables."""

    def __init__(self, folder: Path) -> None:
        """Run 24 jobs, of which some fail, are cancelled, are too large, or are sealed."""
        app = self.app = Dueline(f"sqlite:///{folder / 'jobs.db'}?synchronous=NORMAL")
        app.payloads.add("sealed", SECRET, encode=lambda body: body[::-1], decode=lambda b: b[::-1])
        app.queue("mail", shards=2, history="arguments")
        app.queue("bills", history="all")
        self.lake = folder / "lake"
        self.ran: list[tuple[str, Any]] = []

        @app.task(name="send", queue="mail", retry=Retry(attempts=1))
        def send(number: int, text: str = "") -> None:
            self.ran.append(("send", number))
            if number == 13:
                raise ValueError("unlucky")
            if number == 14:
                raise Cancel("not wanted")

        @app.task(name="seal", queue="mail", codec="sealed")
        def seal(word: str) -> None:
            self.ran.append(("seal", word))

        @app.task(name="pay", queue="bills")
        def pay(number: int) -> None:
            self.ran.append(("pay", number))

        send.enqueue_many([(number,) for number in range(18)])
        send.using(tenant="acme", priority=7).enqueue(18, text="z")
        send.enqueue(19, "x" * ARGUMENTS_BYTES_MAX)
        seal.enqueue("hidden")
        pay.enqueue_many([(number,) for number in range(3)])
        self.live()
        self.pipe = made(self.lake, app)
        self.pipe.run([], quiet)

    def live(self) -> None:
        """Run all that is due."""
        self.app.run_worker(burst=True)

    def replay(self, name: str = "again", **chosen: Any) -> int:
        """Replay some; tell how many were added."""
        from dueline.spark.pipeline.replay import Chosen, Order

        return int(self.pipe.replay(Chosen(**chosen), Order(name, NOW_US), quiet).added)

    def waiting(self) -> list[Job]:
        """Read what waits."""
        return sorted(self.app.queues.engine.jobs_of("mail"), key=lambda job: job.due_us)


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    """Make a store with a past, and its tables."""
    made = Theatre(tmp_path)
    yield made
    made.app.close()


def test_what_can_be_replayed_is_counted_and_what_cannot_is_named(theatre: Theatre) -> None:
    from dueline.spark.pipeline.replay import LARGE, NOT_KEPT, Chosen

    found = theatre.pipe.replayable(Chosen(outcomes=("done", "dead", "cancelled")))
    assert [tuple(one) for one in found.kinds] == [
        ("bills", "pay", "done", 3, 0, 0, 3),
        ("mail", "seal", "done", 1, 1, 0, 0),
        ("mail", "send", "cancelled", 1, 1, 0, 0),
        ("mail", "send", "dead", 1, 1, 0, 0),
        ("mail", "send", "done", 18, 17, 1, 0),
    ]
    assert [(one.queue, one.why) for one in found.left_out] == [
        *[("bills", NOT_KEPT)] * 3,
        ("mail", LARGE),
    ]
    assert theatre.pipe.replayable(Chosen(task="seal")).count("jobs") == 1
    now_us = theatre.app.queues.engine.time.latest_us()
    assert theatre.pipe.replayable(Chosen(until_us=now_us)).count("jobs") == 22
    assert theatre.pipe.replayable(Chosen(since_us=now_us)).count("jobs") == 0


def test_a_replay_calls_the_same_again_as_new_jobs_each_once(theatre: Theatre) -> None:
    # P10
    before = set(theatre.ran)
    theatre.ran.clear()
    assert theatre.replay() == 18
    (one,) = [job for job in theatre.waiting() if job.lane.tenant]
    assert (one.lane.priority, one.lane.tenant) == (7, "acme")
    assert theatre.replay() == 0  # they wait
    theatre.live()
    left_out = {("send", 13), ("send", 14), ("send", 19), *(("pay", number) for number in range(3))}
    assert set(theatre.ran) == before - left_out
    assert ("seal", "hidden") in theatre.ran
    assert len(theatre.ran) == 18
    assert theatre.replay() == 0  # they have run
    assert theatre.replay(outcomes=("dead", "done")) == 1
    assert theatre.replay("once more", task="send") == 17
    theatre.live()
    theatre.pipe.run([], quiet)
    assert theatre.replay("of replays") == 18 + 18 + 17  # what was replayed has ended, too


def test_a_rate_spreads_due_times_in_the_order_of_the_ends(theatre: Theatre) -> None:
    from dueline.spark.pipeline.replay import Chosen, order_of

    order = order_of("slow", theatre.app.queues.engine.time.latest_us() + 3_600_000_000, 4)
    theatre.pipe.replay(Chosen(task="send"), order, quiet)
    dues = [job.due_us - order.start_us for job in theatre.waiting()]
    assert dues == [number * 250_000 for number in range(17)]


def test_a_replay_that_was_cut_off_goes_on_with_the_rest(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.writing import enqueue
    from dueline.spark.writing.write_log import Ledger

    class Killed(BaseException):
        """The process ends here."""

    real: Callable[..., Any] = Ledger.put
    turns = iter(range(10))

    def dying(self: Ledger, *args: Any, **named: Any) -> Any:
        if next(turns) == 2:
            raise Killed
        return real(self, *args, **named)

    monkeypatch.setattr(enqueue, "CHUNK", 4)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "put", dying)
        with pytest.raises(Killed):
            theatre.replay()
    theatre.ran.clear()
    theatre.live()
    assert len(theatre.ran) == 8
    assert theatre.replay() == 10
    theatre.live()
    assert len(theatre.ran) == len(set(theatre.ran)) == 18


def test_an_archive_is_replayed_with_the_enqueue_events_that_are_in_it(
    theatre: Theatre, tmp_path: Path
) -> None:
    from dueline.spark.pipeline.replay import Chosen, Order

    theatre.pipe.archive(at(tmp_path / "whole"), quiet)
    chosen, order = Chosen(), Order("again", NOW_US)
    assert theatre.pipe.replayable(chosen, [at(tmp_path / "whole")]).count("replayable") == 18
    assert theatre.pipe.replay(chosen, order, quiet, [at(tmp_path / "whole")]).added == 18
    assert theatre.replay() == 0  # from the tables it is the same replay
    ends_us = min(
        line["at"] for line in map(dict, archive_rows(tmp_path / "whole"))
        if line["outcome"] == "done"
    )  # fmt: skip
    theatre.pipe.archive(at(tmp_path / "ends"), quiet, since_us=ends_us)
    found = theatre.pipe.replayable(chosen, [at(tmp_path / "ends")])
    assert (found.count("jobs"), found.count("replayable")) == (22, 0)
    theatre.pipe.archive(at(tmp_path / "rest"), quiet, until_us=ends_us)
    both = [at(tmp_path / "ends"), at(tmp_path / "rest")]
    assert theatre.pipe.replayable(chosen, both).count("replayable") == 18
    shutil.rmtree(tmp_path / "rest")
    with pytest.raises(NotFound, match="no complete archive"):
        theatre.pipe.replayable(chosen, both)


def at(folder: Path) -> Any:
    """Return the place of an archive."""
    from dueline.spark.pipeline.delta import place_of

    return place_of(str(folder))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_store_keeps_arguments_and_takes_a_replay_once(kind: str, tmp_path: Path) -> None:
    from dueline.spark.pipeline import replay as replays
    from dueline.spark.pipeline.queries import Duck
    from dueline.spark.pipeline.replay import Chosen, Order
    from dueline.spark.writing.enqueue import put_all
    from dueline.spark.writing.rows_to_jobs import Form, chunks_of
    from tests.harness.spark.tables import line_of

    clock = HandClock()
    defaults = QueueSettings(history="arguments")
    queues = queues_on(store_on(kind, tmp_path, clock), clock, defaults)
    queues.engine.catalog.configure("mail")
    host: Any = SimpleNamespace(queues=queues, tasks={}, hooks=Hooks())
    hand = RawQueue(host, "mail")
    bodies = [b"[%d]" % number for number in range(6)]
    queues.enqueue(EnqueueRequest("mail", "t", 0, bodies))
    hand.ack(hand.claim(5))

    def replay(name: str) -> int:
        rows = queues.engine.store.tail("mail!history", 0, after=None, limit=100).rows
        lines = [line_of("mail", one) for row in rows for one in unbundled(row)]
        history = columns_of(lines)
        assert replays.found(Duck(), history, Chosen()).count("replayable") == 5
        order = Order(name, NOW_US + 9_000_000, 1e6)
        calls = replays.calls(Duck(), history, Chosen(), order).batches()
        chunks = chunks_of(calls, Form(), 2, NOW_US)
        return put_all(queues.engine, chunks, name, 0, keep_us=KEEP_US).added

    assert [replay("again"), replay("again")] == [5, 0]
    clock.advance(60)
    jobs = hand.claim(10)
    assert len(jobs) == 6
    assert {job.body for job in jobs} == set(bodies)


def test_names_rates_and_outcomes_are_checked() -> None:
    from dueline.spark.pipeline.replay import chosen_of, order_of

    for name in ("", "a b", "-a", "a" * 64):
        with pytest.raises(BadInput, match="is not a valid name of a replay"):
            order_of(name, 0, None)
    for rate in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(BadInput, match="jobs per second"):
            order_of("a", 0, rate)
    with pytest.raises(BadInput, match=r"The outcome .retried. does not end a job"):
        chosen_of(None, ["done", "retried"], None, None)


def test_the_command_counts_asks_and_replays(
    theatre: Theatre, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run

    words = ["--store", theatre.app.url, "-o", "json", "pipeline", "replay", "--name", "again"]
    words += ["--out", str(theatre.lake), "--rate", "10"]

    def answer(*more: str) -> tuple[int, int, int]:
        assert run([*words, *more]) == 0
        told = capsys.readouterr()
        assert "too large to record" in told.err
        data = json.loads(told.out)["data"]
        assert len(data["cannot"]) == data["left_out"]
        return data["matching"], data["left_out"], data["added"]

    assert answer("--dry-run") == (18, 4, 0)
    assert run(words) == 5
    assert "would be enqueued: 18" in capsys.readouterr().err
    assert answer("--yes", "--task", "send") == (17, 1, 17)
    assert answer("--yes") == (18, 4, 1)
    assert run([*words, "--queue", "bills", "--yes"]) == 5
    assert "dueline queues set bills --history arguments" in capsys.readouterr().err
    assert run([*words, "--outcome", "over"]) == 2
    assert run([*words, "--archive", str(theatre.lake / "none")]) == 4
    assert run([*words, "--outcome", "expired", "--yes"]) == 0
