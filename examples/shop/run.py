"""A busy shop for the dashboard to show: jobs of all kinds, until Ctrl-C.

Run it, and the dashboard beside it:

    python -m examples.shop.run sqlite:///shop.db
    dueline web --store sqlite:///shop.db --operate
"""

import asyncio
import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dueline import Batch, Context, Dueline, Retry, chord, group, pipeline, wait_for
from dueline.api.embedded_worker import EmbeddedWorker
from examples.shop.functions import Functions

SEED = 7
CUSTOMERS = ("acme", "globex", "initech", "umbrella")
_HOUR = 3600
_DEPLOYED_AFTER = 40
"""Number of orders after which the code of durable functions changes."""


class Declined(Exception):
    """The bank declined a card."""


class Shop:
    """The application of a shop, with tasks that take time and fail now and then."""

    def __init__(self, url: str) -> None:
        """Declare tasks, queues, limits, schedules and a stream."""
        self.app = app = Dueline(url)
        self.random = rng = random.Random(SEED)

        @app.task(name="shop.mail.send", queue="mail", retry=Retry(attempts=4, base=2, cap=20))
        def send(to: str, template: str, api_token: str = "") -> str:
            time.sleep(rng.uniform(0.01, 0.06))
            if to.endswith("@slow.example"):
                raise TimeoutError(f"smtp.slow.example:587 timed out after {rng.randint(9, 30)} s")
            return f"{template} to {to}, {len(api_token)} characters"

        @app.task(
            name="shop.pay.charge", queue="payments", limits=["bank"], retry=Retry(attempts=1)
        )
        def charge(order: int, card_number: str) -> dict[str, object]:
            time.sleep(rng.uniform(0.02, 0.1))
            if order % 23 == 0:
                raise Declined(f"card of order {order} was declined by the bank")
            return {"order": order, "status": "paid", "digits": len(card_number)}

        @app.task(name="shop.media.resize", queue="media", limits=["gpu"])
        def resize(ctx: Context, image: str) -> int:
            for step in range(20):
                time.sleep(rng.uniform(0.4, 1.2))
                ctx.check_cancelled()
                ctx.progress(step + 1, 20, note=f"{image}, {step + 1} of 20 sizes")
            return 20

        @app.task(name="shop.report.day", queue="reports", retry=Retry(attempts=1))
        def day(number: int) -> int:
            time.sleep(rng.uniform(0.05, 0.3))
            if number == 13:
                raise ValueError("no figures for 2026-11-13")
            return number

        @app.task(name="shop.report.total", queue="reports")
        def total(parts: list[int]) -> int:
            return sum(parts)

        @app.task(name="shop.report.publish", queue="reports")
        def publish(number: int, to: str) -> str:
            return f"{number} to {to}"

        self.send, self.charge, self.resize = send, charge, resize
        self.day, self.total, self.publish = day, total, publish
        self.functions = Functions(app)
        app.semaphore("gpu", capacity=2)
        app.rate("bank", 20, per=1)
        app.queue("payments", shards=4)
        app.queue("mail", history="all")
        app.schedule("nightly-report", publish, (0, "board"), cron="30 3 * * *")
        app.schedule("send-digest", send, ("all@acme.example", "digest"), every=1800)
        app.schedule("month-end", total, ([1, 2],), cron="0 6 L * *", tz="Europe/Vilnius")
        self.clicks = app.stream("clicks", shards=12)
        self.clicks.consumer("billing", batch=200)(self._slowly)

    def _slowly(self, batch: Batch) -> None:
        time.sleep(0.02 * len(batch.events))

    def fill(self, *, seed: int = SEED) -> None:
        """Enqueue what is due within a day, workflows, and a backlog without a worker."""
        rng = random.Random(seed)
        for hour in range(25):
            due = round(90 * (1.2 - abs((hour - 10) / 14)))
            for tenant in rng.choices(CUSTOMERS, k=4):
                for priority in (-10, 0, 0, 20):
                    calls = [(f"u{n}@{tenant}.example", "reminder") for n in range(due // 9)]
                    after = hour * _HOUR + rng.uniform(60, _HOUR)
                    using = self.send.using(after=after, priority=priority, tenant=tenant)
                    if calls:
                        using.enqueue_many(calls)
        self.functions.fill()
        for image in range(9):
            self.resize.enqueue(f"sofa-{image:02}.jpg")
        self.app.unchecked("shop.archive.pack", queue="archive").using(tags=["slow"]).enqueue(
            "2025"
        )
        self.app.start(
            chord([self.day.step(n) for n in range(1, 5)], self.total.step()).then(
                self.publish.step(to="ann")
            ),
            name="report of the week",
        )
        self.app.start(
            pipeline(
                group(self.day.step(n) for n in range(1, 31)),
                self.total.step(),
                wait_for("approved", timeout=6 * _HOUR),
                self.publish.step(to="board"),
            ),
            name="report of November",
        )

    def trickle(self, stop: threading.Event) -> None:
        """Enqueue jobs and append events until the shop closes."""
        order = 0
        while not stop.wait(0.25):
            if order > _DEPLOYED_AFTER:
                self.functions.deploy()
            for _ in range(self.random.randint(2, 9)):
                order += 1
                host = "slow.example" if order % 17 == 0 else "acme.example"
                token = "tok_live_" + "x" * 20
                self.send.using(tenant=self.random.choice(CUSTOMERS)).enqueue(
                    f"u{order}@{host}", "receipt", token
                )
            if order % 30 < 9:
                self.resize.enqueue(f"chair-{order:04}.jpg")
            self.charge.using(priority=10).enqueue(order, "4242 4242 4242 4242")
            users = [({"user": n}, str(n)) for n in self.random.choices(range(40), k=12)]
            self.clicks.append_many(users)

    @contextmanager
    def open(self) -> Iterator[EmbeddedWorker | None]:
        """Run a worker, a consumer and customers while the block runs."""
        stop = threading.Event()
        worker = threading.Thread(target=self._work, args=(stop,), daemon=True)
        customers = threading.Thread(target=self.trickle, args=(stop,), daemon=True)
        worker.start()
        customers.start()
        with self.app.consuming():
            try:
                yield None
            finally:
                stop.set()
                customers.join()
                worker.join()

    def _work(self, stop: threading.Event) -> None:
        async def work() -> None:
            async with self.app.worker(
                ["mail", "payments", "media", "reports", "orders"], concurrency=12
            ):
                await asyncio.to_thread(stop.wait)

        asyncio.run(work())


def main(wait: Callable[[float], None] = time.sleep) -> None:
    """Run the shop at the store that the first argument names."""
    logging.disable(logging.ERROR)  # failures are part of the show
    shop = Shop(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///shop.db")
    shop.fill()
    try:
        with shop.open():
            while True:
                wait(1)
    except KeyboardInterrupt:
        shop.app.close()


if __name__ == "__main__":
    main()
