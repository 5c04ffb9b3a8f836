"""The shop that was ported from Celery: its old form, and the size of both."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "celery_shop"
LONGER_MAX = 1.1
TASKS = 8
MAIL = ["1 orders are paid", "price of a1", "price of b2", "receipt receipt-1 of order 1"]

EAGER = """
from django.test import RequestFactory

from examples.celery_shop import before, project

project.create_tables()
before.app.conf.task_always_eager = True
request = RequestFactory().post("/orders", {"total": "12.50", "sku": ["a1", "b2"]})
assert before.place_order(request).status_code == 202
order = project.Order.objects.get()
assert (order.is_paid, order.packed, order.parcel) == (True, "A1,B2", f"receipt-{order.pk}")
before.nightly.delay()
print(*project.Mail.objects.values_list("text", flat=True), sep="\\n")
print(len([name for name in before.app.tasks if name.startswith("shop.")]))
"""

REIMPORTED = """
import sys
from pathlib import Path

from django.test import RequestFactory

from examples.celery_shop import project

old = Path("examples/celery_shop/before.py").read_text()
text = old.replace("from celery import", "from dueline.contrib.celery import")
text = text.replace("from celery.schedules import", "from dueline.contrib.celery import")
lines = [line for line in text.splitlines() if "broker_transport_options" not in line]
(place,) = (n for n, line in enumerate(lines) if line.startswith("app = Celery("))
lines[place] = f'app = Celery("shop", broker="{sys.argv[1]}", priorities="redis")'
shop = {}
exec("\\n".join(lines), shop)

project.create_tables()
request = RequestFactory().post("/orders", {"total": "12.50", "sku": ["a1", "b2"]})
assert shop["place_order"](request).status_code == 202
while not project.Order.objects.get().parcel:
    shop["app"].run_worker(burst=True, concurrency=1)
shop["nightly"].delay()
shop["app"].run_worker(burst=True, concurrency=1)
print(*project.Mail.objects.values_list("text", flat=True), sep="\\n")
print(*shop["app"].schedules.names())
"""


def lines_of(name: str) -> int:
    """Count the lines of a file that are not empty."""
    text = (SHOP / f"{name}.py").read_text(encoding="utf-8")
    return sum(bool(line.strip()) for line in text.splitlines())


def test_the_port_is_not_longer_by_more_than_a_tenth() -> None:
    assert lines_of("after") <= LONGER_MAX * lines_of("before")


@pytest.mark.long
def test_the_shop_on_celery_does_what_the_port_does() -> None:
    pytest.importorskip("django")
    *mail, tasks = run(EAGER)
    assert sorted(mail) == sorted([*MAIL, "how was order 1?"])  # at once, when it is eager
    assert int(tasks) == TASKS


@pytest.mark.long
def test_the_shop_on_celery_runs_with_another_import(tmp_path: Path) -> None:
    pytest.importorskip("django")
    settings = {"SHOP_FILE": str(tmp_path / "shop.sqlite"), "SHOP_PAUSE": "0.1"}
    *mail, schedules = run(REIMPORTED, f"sqlite:///{tmp_path}/jobs.db", **settings)
    assert sorted(mail) == MAIL
    assert schedules == "nightly"


def run(program: str, *words: str, **settings: str) -> list[str]:
    """Run a program; return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
