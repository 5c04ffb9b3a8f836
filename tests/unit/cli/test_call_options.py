"""Options of calls that jobs carry, on the command line."""

import pytest

from dueline.core.option_table import Option, Shape
from tests.harness.carried_options import PASSED, expected, given_for
from tests.harness.shell import Shell


def on_command_line(option: Option, word: str) -> list[str]:
    """Return the words that give the value on the command line."""
    value = given_for(option)
    texts = value if option.shape is Shape.WORDS else [f"{key}={value[key]}" for key in value]
    return [part for text in texts for part in (f"--{word}", text)]


@pytest.mark.parametrize("option", PASSED, ids=[option.name for option in PASSED])
def test_the_command_line_takes_and_shows_what_a_job_carries(shell: Shell, option: Option) -> None:
    job = shell.enqueue("tasks.echo", "1", *on_command_line(option, option.word))
    data = shell.app("jobs", "show", job, "-o", "json").data
    assert data[option.name] == expected(option)
    if option.schedule_word:
        words = on_command_line(option, option.schedule_word)
        shell.app("schedules", "add", "s", "tasks.echo", "2", "--every", "2h", *words)
        data = shell.app("schedules", "show", "s", "-o", "json").data
        assert data[option.name] == expected(option)
        triggered = shell.app("schedules", "trigger", "s").out.strip()
        data = shell.app("jobs", "show", triggered, "-o", "json").data
        assert data[option.name] == expected(option)
