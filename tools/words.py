"""Find words of `words.txt` in identifiers, comments, messages and documentation."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PLACES = ("src", "docs", "README.md", "CHANGELOG.md")
TEST_NAME = re.compile(r"\btest_\w+")
"""Documentation cites tests by their names."""

SUFFIXES = (".py", ".md", ".sql", ".toml", ".css")


class Found(NamedTuple):
    """A banned word: where it is, its line, and what to write instead."""

    file: str
    line: int
    text: str
    word: str
    instead: str


class Allowed(NamedTuple):
    """A line that uses a banned word rightly."""

    file: str
    text: str


def banned(text: str) -> dict[str, str]:
    """Read a list of words and what to write instead."""
    return dict(_fields(line, " = ", 2) for line in _lines(text))


def allowed(text: str) -> dict[Allowed, str]:
    """Read a list of lines that are exceptions, each with its reason."""
    fields = (_fields(line, " | ", 3) for line in _lines(text))
    return {Allowed(file, text): reason for file, text, reason in fields}


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _fields(line: str, separator: str, count: int) -> list[str]:
    fields = [field.strip() for field in line.split(separator)]
    if len(fields) > count:  # the line that is allowed holds the separator itself
        fields = [fields[0], separator.join(fields[1:-1]), fields[-1]]
    if len(fields) != count or not all(fields):
        raise SystemExit(f"{line!r} does not have {count} fields separated by {separator!r}")
    return fields


def pattern_of(word: str) -> re.Pattern[str]:
    """Make the pattern of a word: alone, in `snake_case`, in `CamelCase`, or over a line end.

    The case of a single word does not matter; of words together that of the first: `is None`.
    """
    first, *others = (re.escape(part) for part in word.split())
    gap = r"(?:_|\s+(?:(?:#:?|[-*])\s+)?)"
    text = gap.join([f"(?i:{first})", *others])
    return re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z])){text}(?![a-z])")


def find(file: str, text: str, words: dict[str, str]) -> Iterator[Found]:
    """Yield the banned words of a file."""
    lines = text.splitlines()
    text = TEST_NAME.sub(lambda name: "-" * len(name[0]), text)
    letters = text.lower()
    for word, instead in words.items():
        if any(part not in letters for part in word.lower().split()):
            continue  # a pattern takes far longer
        for match in pattern_of(word).finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            yield Found(file, number, lines[number - 1].strip(), word, instead)


def files(root: Path) -> Iterator[Path]:
    """Yield the files that are searched, in order."""
    for place in PLACES:
        path = root / place
        paths = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in paths if file.suffix in SUFFIXES and file.is_file())


def check(root: Path, words: dict[str, str], exceptions: dict[Allowed, str]) -> list[str]:
    """List what is wrong under a folder: banned words, and exceptions that no line needs."""
    problems, needed = [], set[Allowed]()
    for path in files(root):
        file = path.relative_to(root).as_posix()
        for finding in find(file, path.read_text(encoding="utf-8"), words):
            line = Allowed(file, finding.text)
            if line in exceptions:
                needed.add(line)
            else:
                where = f"{file}:{finding.line}"
                problems.append(
                    f"{where}: {finding.word!r} (say: {finding.instead}): {finding.text}"
                )
    unused = exceptions.keys() - needed
    return problems + [
        f"{line.file}: no such line is left, drop its exception: {line.text}"
        for line in sorted(unused)
    ]


def main() -> int:
    """Print what is wrong; return the exit code."""
    folder = Path(__file__).parent
    words = banned((folder / "words.txt").read_text(encoding="utf-8"))
    exceptions = allowed((folder / "words_allowed.txt").read_text(encoding="utf-8"))
    problems = check(ROOT, words, exceptions)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems, {len(words)} banned words, {len(exceptions)} exceptions")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
