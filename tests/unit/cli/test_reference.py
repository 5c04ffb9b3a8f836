"""The generated parts of docs/reference against the code."""

import re
from pathlib import Path

import pytest

from dueline.cli.errors import MEANINGS, Exit
from tests.harness.shell import Shell
from tools import reference

COMMANDS = [tuple(words.split()[1:]) for words, _ in reference.commands()]
PAGE = (reference.FOLDER / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["cli.md", "settings.md", "http-api.md"])
def test_a_page_is_what_the_code_says(name: str) -> None:
    page = (reference.FOLDER / name).read_text(encoding="utf-8")
    assert reference.rendered(page) == page, "run `make reference`"


def test_every_part_is_on_a_page() -> None:
    pages = [path.read_text(encoding="utf-8") for path in sorted(reference.FOLDER.glob("*.md"))]
    found = re.findall(r"<!-- generated: ([a-z ]+) -->", "".join(pages))
    assert sorted(found) == sorted(reference.PARTS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_and_its_options_are_on_the_page(shell: Shell, words: tuple[str, ...]) -> None:
    answer = shell(*words, "--help")
    assert answer.code == 0
    section = PAGE.partition(f"### dueline {' '.join(words)}\n")[2].partition("\n### ")[0]
    for option in set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", answer.out, re.MULTILINE)):
        assert option == "--help" or f"`{option}" in section, option


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_options_is_short(words: tuple[str, ...]) -> None:
    (command,) = [
        one for name, one in reference.commands() if name == " ".join(["dueline", *words])
    ]
    assert command.help
    for option in command.params:
        assert option.help, option.name
        assert len(option.help.split()) <= 10, option.help


def test_every_exit_code_has_a_meaning() -> None:
    assert list(MEANINGS) == list(Exit)


@pytest.mark.parametrize("word", ["queues set", "quues", ""])
def test_what_is_no_command_is_told_beside_all_that_are(shell: Shell, word: str) -> None:
    answer = shell(word)
    assert answer.code == Exit.USAGE
    assert "No such command" in answer.err


def test_a_page_without_parts_is_left_as_it_is() -> None:
    assert reference.rendered("# Title\n\n| a |\n") == "# Title\n\n| a |\n"
    assert Path(reference.FOLDER).is_dir()
