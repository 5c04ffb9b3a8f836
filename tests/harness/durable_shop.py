"""An application with durable functions in every state."""

from typing import Any

from dueline import Dueline, DurableContext, Job, Retry

SECRET = "hunter2"  # noqa: S105  (not one)
EVIL = "<script>alert(1)</script>\u202e\x1b[31m"


def _turned(data: bytes) -> bytes:
    return data[::-1]


class DurableShop:
    """Functions that wait, sleep, are stopped, dead and done; each is enqueued by its method.

    Attributes:
      fails: Whether the step `charge` fails.
      names: The name of the first step of `renamed`: another one stops the function.
      made: What steps and compensations did.
    """

    def __init__(self, url: str) -> None:
        """Declare the functions."""
        self.app = app = Dueline(url)
        self.fails = False
        self.names = ["one"]
        self.made: list[str] = []

        @app.task(name="shop.label", retry=Retry(attempts=1))
        def label(parcel: int) -> str:
            if parcel == 1:
                raise ValueError(f"no label {EVIL}")
            return f"label {parcel}"

        @app.durable(name="shop.child")
        def child(ctx: DurableContext) -> str:
            return str(ctx.wait_signal("child"))

        @app.durable(name="shop.approve", retry=Retry(attempts=1))
        def approve(ctx: DurableContext, order: str, password: str = "") -> dict[str, object]:
            del password
            ctx.state({"needs": "an editor", "token": SECRET})
            ctx.step(self.book, order, name="book", undo=self.cancel_book)
            ctx.step(self.secret, name="fetch")
            labels = ctx.gather([label.call(n) for n in range(12)], return_exceptions=True)
            answer = ctx.wait_signal("approved", timeout=3 * 86_400)
            return {"order": order, "answer": answer, "labels": len(labels)}

        @app.durable(name="shop.nap")
        def nap(ctx: DurableContext, *, long: bool) -> str:
            ctx.step(self.large, name="large")
            if long:
                ctx.sleep(3600)
            return str(ctx.call(child))

        @app.durable(name="shop.pay", retry=Retry(attempts=1))
        def pay(ctx: DurableContext) -> str:
            ctx.step(self.book, "a table", name="book")
            return str(ctx.step(self.charge, name="charge", retry=Retry(attempts=1)))

        @app.durable(name="shop.renamed")
        def renamed(ctx: DurableContext) -> str:
            ctx.step(self.book, "x", name=self.names[0])
            return str(ctx.wait_signal("go"))

        app.payloads.add("turned", 64, encode=_turned, decode=_turned)

        @app.durable(name="shop.sealed", codec="turned")
        def sealed(ctx: DurableContext) -> str:
            ctx.step(self.secret, name="fetch")
            return str(ctx.wait_signal("go"))

        @app.durable(name="shop.many")
        def many(ctx: DurableContext, count: int) -> None:
            for number in range(count):
                ctx.step(self.book, f"{number}", name="book")
            ctx.wait_signal("go")

        self.approve, self.nap, self.pay, self.renamed = approve, nap, pay, renamed
        self.sealed, self.many = sealed, many

    def book(self, what: str) -> str:
        """Book something: a step."""
        self.made.append(what)
        return f"booked {what}"

    def cancel_book(self, what: str) -> None:
        """Undo `book`."""
        self.made.append(f"undo {what}")

    def secret(self) -> dict[str, str]:
        """Return a secret and text that is no HTML: a step."""
        return {"password": SECRET, "note": EVIL}

    def large(self) -> str:
        """Return a value that is stored apart: a step."""
        return "large" * 4_000

    def charge(self) -> str:
        """Fail, if that is asked for: a step."""
        if self.fails:
            raise ValueError(f"card declined {EVIL}")
        return "charged"

    def work(self) -> None:
        """Run what is due."""
        self.app.run_worker(burst=True, monitor=False)

    def begun(self, call: Any, *args: Any, **kwargs: Any) -> Job[Any]:  # noqa: ANN401
        """Enqueue a function, and run it until it waits or ends."""
        job: Job[Any] = call.enqueue(*args, **kwargs)
        self.work()
        return job

    def stopped(self) -> Job[Any]:
        """Return a function that its code does not fit any more."""
        job = self.begun(self.renamed)
        self.names[0] = "two"
        job.signal("go", "x")
        self.work()
        return job

    def dead(self) -> Job[Any]:
        """Return a function whose step failed."""
        self.fails = True
        job = self.begun(self.pay)
        self.fails = False
        return job
