"""The generated parts of docs/reference against the code."""

import re
import sys
from pathlib import Path

import pytest

from dueline.cli.errors import MEANINGS, Exit
from tests.harness.shell import Shell
from tools import reference

COMMANDS = [tuple(words.split()[1:]) for words, _ in reference.commands()]
PAGE = (reference.FOLDER / "cli.md").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="unions of types are written otherwise")
@pytest.mark.parametrize("name", ["cli.md", "settings.md", "http-api.md"])
def test_a_page_is_what_the_code_says(name: str) -> None:
    page = (reference.FOLDER / name).read_text(encoding="utf-8")
    assert reference.rendered(page) == page, "run `make reference`"


def test_every_part_is_on_a_page() -> None:
    pages = [path.read_text(encoding="utf-8") for path in sorted(reference.FOLDER.glob("*.md"))]
    parts = re.findall(r"<!-- generated: ([a-z ]+) -->", "".join(pages))
    assert sorted(parts) == sorted(reference.PARTS)


@pytest.mark.long
def test_each_command_accepts_yes_and_has_its_options_on_the_page(bare_shell: Shell) -> None:
    for words in COMMANDS:
        answer = bare_shell(*words, "--yes", "-y", "--help")
        assert answer.code == 0, words
        section = PAGE.partition(f"### dueline {' '.join(words)}\n")[2].partition("\n### ")[0]
        for option in set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", answer.out, re.MULTILINE)):
            assert option == "--help" or f"`{option}" in section, (words, option)


def test_after_two_dashes_yes_is_an_argument(shell: Shell) -> None:
    answer = shell("--store", "sqlite:///jobs.db", "limits", "remove", "--", "--yes")
    assert answer.why == "--yes is not set."


CREATING = [("limits", "set", "x", "3"), ("limits", "set", "x", "3", "--per", "1s"), ("migrate",)]
NOT_CREATING = [
    *(("queues", word, "mail") for word in ("show", "pause", "resume", "purge", "drain")),
    ("queues", "set", "mail", "--lease", "60s"), ("queues", "quota", "mail", "--depth", "3"),
    *(("schedules", word, "x") for word in ("show", "pause", "resume", "trigger", "remove")),
    ("schedules", "add", "x", "t", "--every", "5s", "--unchecked"),
    ("limits", "remove", "x"), ("limits", "list"), ("limits", "holders", "x"),
    *(("workers", word) for word in ("list",)),
    *(("workers", word, "--all") for word in ("ping", "quiet", "resume", "stop")),
    *(("jobs", word) for word in ("list", "peek", "tail")),
    *(("jobs", word, "--all-matching", "--yes") for word in ("cancel", "retry")),
    ("dead", "list"), ("dead", "retry", "--all"), ("dead", "redrives"),
    ("dead", "purge", "--older-than", "1d"), ("dead", "redrive", "--resume"),
    ("flows", "list"), ("streams", "list"), ("streams", "pause", "x"), ("shards", "list"),
    ("events",), ("health",), ("doctor",), ("stats",), ("alerts",), ("backup", "copy.db"),
]  # fmt: skip


@pytest.mark.parametrize("words", CREATING, ids=" ".join)
def test_some_commands_create_a_file(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell("--store", "sqlite:///new.db", *words).code == 0
    assert (shell.folder / "new.db").exists()


def test_other_commands_create_no_file(bare_shell: Shell) -> None:
    for words in NOT_CREATING:
        answer = bare_shell("--store", "sqlite:///new.db", *words)
        assert (answer.code, (bare_shell.folder / "new.db").exists()) == (7, False), answer


def test_the_help_of_options_is_short() -> None:
    for name, command in reference.commands():
        assert command.help, name
        for option in command.params:
            assert option.help, (name, option.name)
            assert len(option.help.split()) <= 10, (name, option.help)


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
