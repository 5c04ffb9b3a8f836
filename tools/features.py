"""Write docs/developers/feature-tests.md: which tests and programs show each feature.

A test names features by their ids in a comment that begins with them (`# C12, T13`), a module at
the end of the first line of its docstring (`Unique jobs (C12).`), a test of features on Cassandra
at the beginning of its name. A rule of docs/protocols.md is cited as `rule P1`.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FEATURES: Final = ROOT / "docs" / "features.md"
PAGE: Final = ROOT / "docs" / "developers" / "feature-tests.md"
FOLDERS: Final = ("tests", "models", "simulation", "benchmarks", "examples")

_ID: Final = r"[A-Z]\d{1,2}"
_IDS: Final = rf"{_ID}(?:(?:, | and ){_ID})*"
_COMMENT: Final = re.compile(rf"^\s*# ({_IDS})\b")
_FUNCTION: Final = re.compile(r"(\s*)(?:async )?def (\w+)")
_MODULE: Final = re.compile(rf"^r?\"\"\".*\(({_IDS})\)\.(?:\"\"\")?$")
_NAMED: Final = re.compile(rf"\s*feature\(\"(({_IDS}): .*?)\"")
_ROW: Final = re.compile(rf"^\| ({_ID}) \| (.+?) \| (.+?) \|", re.MULTILINE)

WHOLE: Final = ""
"""Stands for all tests of a module."""

Shown = Mapping[str, Mapping[str, Sequence[str]]]
"""The modules that show a feature by its id, each with its tests that do."""


def features() -> dict[str, str]:
    """Return the names of the features that exist, by their ids."""
    text = FEATURES.read_text(encoding="utf-8").partition("\n## Not yet")[0]
    return {row[1]: row[2] for row in _ROW.finditer(text)}


def cited_in(source: str) -> Iterator[tuple[str, str]]:
    """Yield each id that a module cites, and the test that does: empty for the whole module."""
    lines = source.splitlines()
    if lines and (match := _MODULE.search(lines[0])):
        yield from ((feature, WHOLE) for feature in _split(match[1]))
    test, indent = WHOLE, 0
    for line in lines:
        if (match := _FUNCTION.match(line)) and (not test or len(match[1]) <= indent):
            test, indent = match[2] if match[2].startswith("test_") else WHOLE, len(match[1])
        elif test and (match := _COMMENT.match(line)):
            yield from ((feature, test) for feature in _split(match[1]))
        elif match := _NAMED.match(line):
            yield from ((feature, match[1]) for feature in _split(match[2]))


def _split(ids: str) -> list[str]:
    return re.findall(_ID, ids)


def shown() -> Shown:
    """Read which tests and programs show which feature."""
    tests: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            for feature, test in cited_in(path.read_text(encoding="utf-8")):
                if test not in tests[feature][module]:
                    tests[feature][module].append(test)
    return tests


def rendered() -> str:
    """Return the page."""
    by_feature = shown()
    rows = [
        f"| {feature} | {name} | {', '.join(f'`{module}`' for module in by_feature[feature])} |"
        for feature, name in features().items()
    ]
    return "\n".join([_HEAD, *rows, ""])


_HEAD: Final = """\
# Features and their tests

For developers. `make reference` writes this page from the ids in tests, models and programs.
`python -m tools.features C12` prints the tests of a feature by their names.
[Features](../features.md) explains the ids.

| id | feature | shown by |
| --- | --- | --- |"""


def main() -> None:
    """Write the page; print the tests of the features that are named."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("ids", nargs="*", help="ids of features, such as C12")
    ids = parser.parse_args().ids
    for feature in ids:
        for module, tests in shown()[feature].items():
            print(module, *(f"  {test}" for test in tests if test != WHOLE), sep="\n")
    if not ids:
        PAGE.write_text(rendered(), encoding="utf-8")


if __name__ == "__main__":
    main()
