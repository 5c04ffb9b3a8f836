"""`python -m tests.kills.ports`: examples of DBOS under kills, on dueline and on DBOS.

PORTS_KILLS, from the environment, says how often each side's worker is killed. With PORTS_STORE,
an empty database of a server, the argument names the side.

Effects are counted, not records: each call of a step writes a line before and after it
(`examples/dbos_apps`). A step may run once more for each worker that was killed while it ran, and
never otherwise.
"""

import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from examples.dbos_apps import world
from examples.dbos_apps.application import app
from tests.harness.peers import PEERS
from tests.kills.processes import ROOT, told_in

KILLS: Final = 12
RECORDS: Final = 6
"""How often each of the five applications is started."""

BATCHES: Final = 2
EFFECTS: Final = 150
"""About as many effects a run has; the kills are spread over them."""

WAIT_S: Final = 60.0
END_S_MAX: Final = 240.0
TICK_S: Final = 0.01
ENDS: Final = {"done": "done", "SUCCESS": "done", "dead": "failed", "ERROR": "failed"}


class Side(Protocol):
    """One of the two libraries: its worker, and what a caller does."""

    def worker(self) -> "subprocess.Popen[bytes]":
        """Start the worker."""
        ...

    def start(self, record: str, name: str, argument: object) -> None:
        """Start a function."""
        ...

    def send(self, record: str, signal: str, value: str) -> None:
        """Send a signal to a function; a repeat changes nothing."""
        ...

    def end(self, record: str) -> tuple[str, Any]:
        """Return how a function ended, or another word if it has not, and its result."""
        ...

    def close(self) -> None:
        """End what is open."""
        ...


class OnDueline:
    """The ports."""

    def __init__(self, folder: Path) -> None:
        """Take an empty folder."""
        self._folder = folder
        self._url = os.environ.get("PORTS_STORE", f"sqlite:///{folder}/store.db")
        app.use_store(self._url)
        self._jobs: dict[str, str] = {}

    def worker(self) -> "subprocess.Popen[bytes]":
        """Start the worker."""
        place = "examples.dbos_apps.application:app"
        command = [sys.executable, "-m", "dueline", "worker", place, "--concurrency", "8"]
        settings = {"DUELINE_STORE": self._url, "PORTS_FOLDER": str(self._folder)}
        return _started(command, self._folder, settings)

    def start(self, record: str, name: str, argument: object) -> None:
        """Start a function."""
        self._jobs[record] = app.task_named(name).enqueue(argument).id

    def send(self, record: str, signal: str, value: str) -> None:
        """Send a signal to a function."""
        app.job(self._jobs.get(record, record)).signal(signal, value, id="1")

    def end(self, record: str) -> tuple[str, Any]:
        """Return how a function ended."""
        job = app.job(self._jobs.get(record, record))
        status = job.status
        return ENDS.get(status, status), job.result(timeout=0) if status == "done" else None

    def close(self) -> None:
        """Close the application."""
        app.close()


class OnDBOS:
    """The originals; the caller is a process of the other environment."""

    def __init__(self, folder: Path) -> None:
        """Take an empty folder."""
        self._folder = folder
        self._client: subprocess.Popen[str] | None = None

    def worker(self) -> "subprocess.Popen[bytes]":
        """Start the worker."""
        settings = {"PORTS_FOLDER": str(self._folder)}
        module = "examples.dbos_apps.originals"
        return _started([str(PEERS), "-m", module], self._folder, settings)

    def _ask(self, *terms: object) -> Any:  # noqa: ANN401  (of any shape)
        if self._client is None:
            self._client = subprocess.Popen(
                [PEERS, "-m", "examples.dbos_apps.start_originals"],
                cwd=ROOT,
                env=os.environ | {"PORTS_FOLDER": str(self._folder)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(json.dumps(terms) + "\n")
        self._client.stdin.flush()
        return json.loads(self._client.stdout.readline())

    def start(self, record: str, name: str, argument: object) -> None:
        """Start a function."""
        self._ask("start", record, name, argument)

    def send(self, record: str, signal: str, value: str) -> None:
        """Send a signal to a function."""
        self._ask("send", record, signal, value)

    def end(self, record: str) -> tuple[str, Any]:
        """Return how a function ended."""
        status, output = self._ask("end", record)
        return ENDS.get(status, status), output

    def close(self) -> None:
        """End the caller."""
        if self._client is not None:
            self._client.kill()
            self._client.communicate()  # closes its pipes


SIDES: Final[Mapping[str, Callable[[Path], Side]]] = {"dueline": OnDueline, "DBOS": OnDBOS}


def _started(
    command: list[str], folder: Path, settings: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    with (folder / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            command, cwd=ROOT, env=os.environ | settings, stdout=stderr, stderr=stderr
        )


class Report(NamedTuple):
    """What became of all records.

    kills: How often the worker was killed. records: Functions that the caller started.
    effects: Steps that ran. doubled: Of these, how many ran more than once.
    faults: What must not be, in words.
    """

    kills: int
    records: int
    effects: int
    doubled: int
    faults: list[str]


class Ports:
    """One run of all five on one side."""

    def __init__(self, side: str, folder: Path, *, kills: int, seed: int) -> None:
        """Take the name of a side, an empty folder, how often to kill, and a seed."""
        self._folder = folder
        self._side: Side = SIDES[side](folder)
        choice = random.Random(seed)
        self._after = sorted(choice.randrange(EFFECTS) for _ in range(kills))
        self._killed: set[int] = set()
        with closing(sqlite3.connect(folder / "shop.db")) as tables:
            tables.executescript(world.SCHEMA)

    def run(self) -> Report:
        """Start all, kill the worker, wait for all ends, and judge."""
        worker = self._side.worker()
        try:
            self._start()
            for effects in self._after:
                self._let_work(effects)
                assert worker.poll() is None, "the worker ended: " + self._errors()
                worker.kill()
                worker.wait()
                self._killed.add(worker.pid)
                worker = self._side.worker()
            results = self._ends()
        finally:
            worker.kill()
            worker.wait()
            self._side.close()
        return self.judge(results)

    def _errors(self) -> str:
        return told_in(self._folder / "stderr")

    def _start(self) -> None:
        for number in range(RECORDS):
            for name, kind in (("c", "checkout"), ("a", "agent"), ("o", "refund"),
                               ("t", "research")):  # fmt: skip
                self._side.start(f"{name}-{number}", kind, f"{name}-{number}")
            self._side.send(f"c-{number}", "payment", "paid" if number % 3 else "failed")
            self._side.send(f"a-{number}", "answer", "confirm" if number % 2 else "deny")
        for batch in range(BATCHES):
            urls = [f"http://example.org/d-{batch * 10 + place}" for place in range(4)]
            self._side.start(f"b-{batch}", "documents", urls)

    def _let_work(self, effects: int) -> None:
        """Wait until there were so many effects, or nothing happens any more."""
        give_up = time.monotonic() + WAIT_S / 4
        while len(self._lines()) < 2 * effects and time.monotonic() < give_up:
            time.sleep(TICK_S)

    def _lines(self) -> list[list[str]]:
        path = self._folder / "effects"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def _ends(self) -> dict[str, tuple[str, Any]]:
        """Wait for the ends of all functions, of the reviews, and of the dispatches."""
        waiting = [f"{name}-{number}" for name in "caot" for number in range(RECORDS)]
        refunds = {f"o-{number}" for number in range(RECORDS)}
        waiting += [f"b-{batch}" for batch in range(BATCHES)]
        results: dict[str, tuple[str, Any]] = {}
        give_up = time.monotonic() + END_S_MAX
        while waiting or self._shop("select 1 from orders where status = 'paid'"):
            assert time.monotonic() < give_up, f"{waiting} do not end: {self._errors()}"
            for record in list(waiting):
                status, value = self._side.end(record)
                if status not in ENDS.values():
                    continue
                waiting.remove(record)
                if record in refunds and value != "refunded":  # it is the id of a review
                    waiting.append(value)
                    number = int(record.partition("-")[2])
                    self._side.send(value, "review", "approve" if number % 4 == 1 else "reject")
                results[record] = status, value
            time.sleep(10 * TICK_S)
        return results

    def _shop(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self._folder / "shop.db", timeout=60)) as shop:
            return shop.execute(query).fetchall()

    def judge(self, results: Mapping[str, tuple[str, Any]]) -> Report:
        """Compare the effects, and the shop, with what functions returned."""
        begins: dict[tuple[str, str], list[int]] = defaultdict(list)
        ends: dict[tuple[str, str], set[int]] = defaultdict(set)
        for word, record, step, value, pid in self._lines():
            if word == "begins":
                begins[record, step].append(int(pid))
            else:
                ends[record, step].add(int(value))
        doubled = {step: pids for step, pids in begins.items() if len(pids) > 1}
        faults = [
            f"{step} began in {pids}, of which {sorted(self._killed & set(pids))} were killed"
            for step, pids in doubled.items()
            if len(set(pids)) < len(pids) or len(set(pids) - self._killed) > 1
        ]
        for record in sorted({record for record, _ in begins}, key=str):
            expected = set(self._expected(record, results))
            ended = {step for name, step in ends if name == record}
            begun = {step for name, step in begins if name == record}
            if expected != ended or not begun <= expected:
                faults.append(f"{record} did {sorted(begun)}, not {sorted(expected)}")
        faults += self._wrong_results(results, ends)
        faults += self._wrong_orders(results)
        return Report(len(self._killed), len(results), len(begins), len(doubled), faults)

    def _expected(self, record: str, results: Mapping[str, tuple[str, Any]]) -> Iterator[str]:
        """Yield the steps of a record."""
        kind, _, text = record.partition("-")
        number = int(text)
        if kind == "c":
            yield from ("create", "reserve")
            yield from {
                "paid": ("paid", *(f"part-{part}" for part in range(world.TICKS))),
                "not paid": ("release", "cancelled"),
                "sold out": ("cancelled",),
            }[results[record][1]]
        elif kind == "a":
            yield from ("plan", "execute") if number % 2 else ("plan",)
        elif kind == "o":
            yield "look-up"
            if number % 2:
                yield from ("pending", "mail", "refunded" if number % 4 == 1 else "rejected")
            else:
                yield "refunded"
        elif kind == "d":
            yield from ("download", *(f"page-{page}" for page in range(world.PAGES)))
        elif kind == "t":
            rounds = world.rounds_of(record)
            for place in range(rounds):
                stories = range(world.stories_of(record))
                yield from (f"search-{place}", f"evaluate-{place}", f"judge-{place}")
                yield from (f"comments-{place}-{story}" for story in stories)
            yield from (f"follow-up-{place}" for place in range(rounds - 1))
            yield "report"

    def _wrong_results(
        self, results: Mapping[str, tuple[str, Any]], ends: Mapping[tuple[str, str], set[int]]
    ) -> Iterator[str]:
        for record, (status, value) in results.items():
            kind, _, text = record.partition("-")
            denied = kind == "a" and int(text) % 2 == 0
            if status != ("failed" if denied else "done"):
                yield f"{record} is {status}: {value}"
            elif kind == "b" and value != 4 * world.PAGES:
                yield f"{record} counted {value} pages"
            elif kind == "t" and not all(
                number in ends[record, f"evaluate-{place}"] for place, number in enumerate(value)
            ):
                yield f"{record} returned {value}, which no step did"

    def _wrong_orders(self, results: Mapping[str, tuple[str, Any]]) -> Iterator[str]:
        """Yield what is wrong in the database of the shop."""
        words = {"paid": "dispatched", "not paid": "cancelled", "sold out": "cancelled"}
        ends = {record: value for record, (_, value) in results.items() if record[0] == "c"}
        orders = self._shop("select customer, status, remaining from orders")
        counts = Counter(customer for customer, _, _ in orders)
        if counts != Counter(list(ends)):
            yield f"orders by customer: {counts}"
        for customer, status, remaining in orders:
            left = 0 if status == "dispatched" else world.TICKS
            if status != words[ends[customer]] or remaining != left:
                yield f"order of {customer} is {status}, {remaining} parts before its end"
        paid = sum(value == "paid" for value in ends.values())
        stock = self._shop("select inventory from products")
        if stock != [(world.STOCK - paid,)]:
            yield f"{paid} paid, and the stock is {stock}"


def main() -> int:
    """Run both sides and print their reports as JSON; answer 1 where there is a fault."""
    kills, seed = int(os.environ.get("PORTS_KILLS", KILLS)), int.from_bytes(os.urandom(4))
    faults = 0
    for side in sys.argv[1:] or (SIDES if PEERS.exists() else ["dueline"]):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = Ports(side, Path(folder), kills=kills, seed=seed).run()
        told = {"side": side, "seed": seed, "took_s": round(time.monotonic() - began, 1)}
        print(json.dumps(told | report._asdict(), indent=2))  # noqa: T201
        faults += len(report.faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
