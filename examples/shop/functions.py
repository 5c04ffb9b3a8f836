"""Durable functions of the shop: one waits for an editor, one is undone, one is stopped."""

import random
import time
from datetime import timedelta

from dueline import Dueline, DurableContext, Retry

_DAY = 86_400


class OutOfStock(Exception):
    """An order cannot be packed."""


def write(page: str) -> dict[str, str]:
    """Write a page."""
    return {"page": page, "text": "A sofa for a long weekend. " * 12, "api_token": "tok_live_1"}


def translate(text: str) -> str:
    """Translate a page."""
    time.sleep(0.1)
    return text.upper()


def reserve(order: int) -> str:
    """Reserve what an order needs."""
    return f"shelf {order % 9}, box {order}"


def release(box: str) -> None:
    """Undo `reserve`."""
    del box


def charge(order: int) -> str:
    """Charge an order; the bank does not always answer."""
    if random.random() < 0.5:
        raise TimeoutError("bank.example:443 timed out after 10 s")
    return f"payment of {order}"


def refund(payment: str) -> None:
    """Undo `charge`."""
    del payment


def pack(order: int) -> str:
    """Pack an order: it fails."""
    raise OutOfStock(f"order {order}: 3 of 4 items are in stock")


def read(part: int) -> dict[str, int]:
    """Read a part of a file."""
    return {"part": part, "rows": 1_000}


class Functions:
    """Durable functions, and the task that they call.

    Attributes:
      fetch: Name of a step: after a deploy it has another one, which stops a function.
    """

    def __init__(self, app: Dueline) -> None:
        """Declare them."""
        self.fetch = "fetch"

        @app.task(name="shop.page.picture", queue="orders", retry=Retry(attempts=1))
        def picture(size: int) -> str:
            if size == 3:
                raise ValueError("the picture is smaller than 3,000 pixels")
            return f"{size},000 pixels"

        @app.durable(name="shop.page.publish", queue="orders")
        def publish(ctx: DurableContext, page: str) -> str:
            ctx.state({"needs": "an editor", "page": page})
            draft = ctx.step(write, page)
            ctx.step(translate, draft["text"])
            ctx.gather([picture.call(size) for size in range(1, 25)], return_exceptions=True)
            ctx.sleep(1)
            by = ctx.wait_signal("approved", timeout=timedelta(days=3))
            return f"{page} by {by}"

        @app.durable(name="shop.order.checkout", queue="orders")
        def checkout(ctx: DurableContext, order: int, card_number: str) -> str:
            del card_number
            ctx.step(reserve, order, undo=release)
            ctx.step(charge, order, undo=refund, retry=Retry(attempts=20, cap=0.1))
            return str(ctx.step(pack, order, retry=Retry(attempts=2, cap=0.1)))

        @app.durable(name="shop.stock.watch", queue="orders")
        def watch(ctx: DurableContext, shelf: int) -> None:
            ctx.step(reserve, shelf)
            ctx.sleep(_DAY)

        @app.durable(name="shop.stock.import", queue="orders")
        def load(ctx: DurableContext, parts: int) -> int:
            for part in range(parts):
                ctx.step(read, part, name=self.fetch if part == 0 else "read")
            ctx.sleep(5)
            return parts

        self.publish, self.checkout, self.watch, self.load = publish, checkout, watch, load

    def fill(self) -> None:
        """Enqueue some of each."""
        for page in ("sofas", "lamps"):
            self.publish.enqueue(page)
        for order in range(3):
            self.checkout.enqueue(order, "4242 4242 4242 4242")
            self.watch.enqueue(order)
        self.load.enqueue(230)

    def deploy(self) -> None:
        """Change the code."""
        self.fetch = "download"
