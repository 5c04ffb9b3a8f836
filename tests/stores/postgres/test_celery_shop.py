"""The shop that was ported from Celery, with a worker, in Django's own database (A8)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.postgres import database

pytestmark = pytest.mark.postgres
pytest.importorskip("django")

ROOT = Path(__file__).parents[3]

PORTED = """
import asyncio, time
from django.db import DatabaseError, transaction
from django.test import RequestFactory

from dueline.cli import run
from dueline.core.store import Migratable
from examples.celery_shop import after, project

project.create_tables()
assert isinstance(after.app.store, Migratable)
after.app.store.migrate()
order = {"total": "12.50", "sku": ["a1", "b2"]}
assert after.place_order(RequestFactory().post("/orders", order)).status_code == 202
with transaction.atomic():  # the view rolls back: neither an order nor a job
    after.place_order(RequestFactory().post("/orders", order))
    transaction.set_rollback(True)


def state():
    paid = [(one.is_paid, one.packed, one.parcel) for one in project.Order.objects.all()]
    return paid, sorted(project.Mail.objects.values_list("text", flat=True))


async def until(is_done):
    give_up_s = time.monotonic() + 120
    while time.monotonic() < give_up_s and not is_done(*await asyncio.to_thread(state)):
        await asyncio.sleep(0.05)


async def main():
    async with after.app.worker():
        await until(lambda orders, mail: orders[0][2] and mail)
        after.app.schedules.trigger("shop.nightly")
        await until(lambda orders, mail: len(mail) == 4)

asyncio.run(main())
print(*state(), sep="\\n")
run(["jobs", "list", "--state", "scheduled", "-o", "csv"])
print("dead:")
run(["dead", "list", "-o", "csv"])
print(after.app.schedules.names())
"""


@pytest.fixture
def settings() -> Iterator[dict[str, str]]:
    """The environment of a shop in an empty database."""
    with database() as url:
        yield {**os.environ, "DUELINE_STORE": url, "SHOP_PAUSE": "0.1"}


@pytest.mark.long
def test_the_ported_shop_sells(settings: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PORTED],
        cwd=ROOT, env=settings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    orders, mail, *listed = done.stdout.splitlines()
    assert orders == "[(True, 'A1,B2', 'receipt-1')]"
    assert mail == str(
        ["1 orders are paid", "price of a1", "price of b2", "receipt receipt-1 of order 1"]
    )
    scheduled = [line for line in listed if "shop.ask_for_review" in line]
    assert len(scheduled) == 1, listed
    assert listed[listed.index("dead:") + 1 :] == ["['shop.nightly']"]  # the schedules
