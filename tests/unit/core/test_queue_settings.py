"""Names and settings of queues."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import BadInput
from dueline.core.queue_settings import QueueSettings, check_queue_name, check_settings

NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789_-"


@given(
    st.sampled_from("abcdefghijklmnopqrstuvwxyz"), st.text(alphabet=NAME_CHARACTERS, max_size=62)
)
@example("a", "")
@example("z", "-" * 62)
def test_a_letter_and_up_to_62_more_is_a_name(first: str, rest: str) -> None:
    assert check_queue_name(first + rest) == first + rest


@given(st.one_of(st.text(), st.text(alphabet=NAME_CHARACTERS + "!./ A\n", max_size=70)))
@example("")
@example("a\n")
@example("mail!dead")
@example("a" * 64)
@example("1a")
@example("-a")
@example("é")
@example("a٣")  # a digit, though not one of 0-9
@example("Mail")
def test_a_name_passes_or_is_refused_with_what_to_use(name: str) -> None:
    is_name = (
        1 <= len(name) <= 63
        and name[0] in "abcdefghijklmnopqrstuvwxyz"
        and set(name) <= set(NAME_CHARACTERS)
    )
    if is_name:
        assert check_queue_name(name) == name
        return
    with pytest.raises(BadInput, match=f"^{re.escape(repr(name))} is not a queue name") as raised:
        check_queue_name(name)
    assert "lower-case letter" in raised.value.hint


@pytest.mark.parametrize("name", [None, 3, b"mail", ["mail"]])
def test_what_is_no_text_is_no_name(name: object) -> None:
    with pytest.raises(BadInput):
        check_queue_name(name)


def test_the_defaults_pass_and_are_those_of_the_design() -> None:
    settings = check_settings(QueueSettings())
    assert settings == QueueSettings(1, 1, DAY_US, 30 * SECOND_US, "attempts", DAY_US)


@pytest.mark.parametrize(
    "settings",
    [
        QueueSettings(shards=1024),
        QueueSettings(lease_us=SECOND_US // 10),
        QueueSettings(lease_us=DAY_US),
        QueueSettings(keep_us=0),
        QueueSettings(aging_us=1000),
        QueueSettings(aging_us=3660 * DAY_US),
        QueueSettings(history="off"),
    ],
)
def test_the_bounds_themselves_pass(settings: QueueSettings) -> None:
    assert check_settings(settings) is settings


@pytest.mark.parametrize(
    ("settings", "what", "got"),
    [
        (QueueSettings(shards=0), "`shards` must be", "(got 0)"),
        (QueueSettings(shards=1025), "`shards` must be", "(got 1025)"),
        (QueueSettings(lease_us=99_999), "`lease` must be", "(got 0.099999 s)"),
        (QueueSettings(lease_us=DAY_US + 1), "`lease` must be", "(got 86400.000001 s)"),
        (QueueSettings(aging_us=-1), "`aging` must be", "(got -1e-06 s)"),
        (QueueSettings(aging_us=999), "`aging` must be", "(got 0.000999 s)"),
        (QueueSettings(aging_us=3661 * DAY_US), "`aging` must be", "(got 316310400.0 s)"),
        (QueueSettings(keep_us=-1), "`keep` must be", "(got -1e-06 s)"),
        (QueueSettings(keep_us=3661 * DAY_US), "`keep` must be", "(got 316310400.0 s)"),
        (QueueSettings(shards=True), "`shards` must be an integer", "(got True)"),
        (QueueSettings(keep_us=0.5), "`keep` must be", "(got 5e-07 s)"),  # type: ignore[arg-type]
        (
            QueueSettings(history="every"),  # type: ignore[arg-type]
            "`history` must be one of attempts, all, arguments, off",
            "(got 'every')",
        ),
    ],
)
def test_what_lies_beyond_is_refused_by_name(settings: QueueSettings, what: str, got: str) -> None:
    with pytest.raises(BadInput, match=f"{re.escape(what)}.*{re.escape(got)}") as raised:
        check_settings(settings)
    assert raised.value.hint
