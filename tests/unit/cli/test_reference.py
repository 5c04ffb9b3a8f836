"""docs/cli.md against the commands."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from dueline.cli.errors import Exit
from dueline.cli.main import root_with
from tests.harness.shell import Shell

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(app: typer.Typer, *above: str) -> Iterator[tuple[str, ...]]:
    """Name every command."""
    for one in app.registered_commands:
        assert one.callback is not None
        yield (*above, one.name or one.callback.__name__)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        assert group.name is not None
        yield from commands(group.typer_instance, *above, group.name)


COMMANDS = sorted(commands(root_with()))


def test_there_are_as_many_commands_as_the_page_lists() -> None:
    listed = re.findall(r"^\| `dueline ((?:[a-z]+ ?)+)", PAGE, flags=re.MULTILINE)
    assert sorted(tuple(one.split()) for one in listed) == COMMANDS


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_and_its_options_are_on_the_page(shell: Shell, words: tuple[str, ...]) -> None:
    answer = shell(*words, "--help")
    assert answer.code == 0
    assert f"`dueline {' '.join(words)}" in PAGE
    for option in set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", answer.out, re.MULTILINE)):
        assert option == "--help" or option in PAGE, option


def test_every_exit_code_is_on_the_page() -> None:
    for code in Exit:
        assert re.search(rf"^\| [0-9, ]*\b{int(code)}\b", PAGE, re.MULTILINE), code


@pytest.mark.parametrize("word", ["queues set", "quues", ""])
def test_what_is_no_command_is_told_beside_all_that_are(shell: Shell, word: str) -> None:
    answer = shell(word)
    assert answer.code == Exit.USAGE
    assert "No such command" in answer.err
