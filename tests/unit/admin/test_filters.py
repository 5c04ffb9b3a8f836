"""Filters as people write them (V1)."""

import pytest

from dueline.admin.filters import parse_filter, written_filter
from dueline.admin.search import JobFilter, is_like
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput

NOW_US = 1_000_000_000 * SECOND_US


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("", JobFilter()),
        ("state:dead task:shop.mail", JobFilter("dead", task="shop.mail")),
        ("tenant:a  queue:mail tag:x", JobFilter(queue="mail", tenant="a", tag="x")),
        ('error:"timed out" worker:vm', JobFilter(error="timed out", worker="vm")),
        ("priority>3", JobFilter(priority_min=4)),
        ("priority>=3 priority<10", JobFilter(priority_min=3, priority_max=9)),
        ("priority:-5", JobFilter(priority_min=-5, priority_max=-5)),
        ("due<1h", JobFilter(due_before_us=NOW_US + 3600 * SECOND_US)),
        ("due<-90s", JobFilter(due_before_us=NOW_US - 90 * SECOND_US)),
        ("due<2001-09-09T01:46:40+00:00", JobFilter(due_before_us=NOW_US)),
        ("Timeout", JobFilter(text="Timeout")),
        ('"two words"', JobFilter(text="two words")),
        ('tenant:""', JobFilter(tenant="")),
    ],
)
def test_a_filter_is_read(text: str, like: JobFilter) -> None:
    assert parse_filter(text, NOW_US) == like


@pytest.mark.parametrize(
    "text",
    [
        "state:happy", "colour:red", "priority>x", "task>3", "state:", "due<soon", "due<2001-x",
        "task:a task:b", "a b", 'error:"open', "priority:1 priority>0", "x" * 501, "due:1h",
        "due<2001-09-09T01:46:40",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(BadInput):
        parse_filter(text, NOW_US)


def test_a_written_filter_is_read_back() -> None:
    written = written_filter(state="dead", task="a.b", error='no "file" here', tenant="")
    assert parse_filter(written, 0) == JobFilter("dead", task="a.b", error="no  file  here")


def test_a_star_stands_for_any_characters() -> None:
    assert is_like("shop.*", "shop.mail")
    assert is_like("*.mail", "shop.mail")
    assert not is_like("shop.*", "shopxmail")
    assert is_like("a[b]*", "a[b]c")
    assert not is_like("shop", "shop.mail")
