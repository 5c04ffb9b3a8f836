"""The shop that was ported from Celery: its old form, and the size of both."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "celery_shop"
LONGER_MAX = 1.1
TASKS = 8

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


def lines_of(name: str) -> int:
    """Count the lines of a file that are not empty."""
    text = (SHOP / f"{name}.py").read_text(encoding="utf-8")
    return sum(bool(line.strip()) for line in text.splitlines())


def test_the_port_is_not_longer_by_more_than_a_tenth() -> None:
    assert lines_of("after") <= LONGER_MAX * lines_of("before")


def test_the_shop_on_celery_does_what_the_port_does() -> None:
    pytest.importorskip("django")
    done = subprocess.run(
        [sys.executable, "-c", EAGER], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *mail, tasks = done.stdout.splitlines()
    assert sorted(mail) == [
        "1 orders are paid", "how was order 1?", "price of a1", "price of b2",
        "receipt receipt-1 of order 1",
    ]  # fmt: skip
    assert int(tasks) == TASKS
