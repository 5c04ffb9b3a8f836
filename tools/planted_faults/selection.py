"""Chooses the tests that may notice a fault: those that run its lines."""

import ast
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path

from tools.planted_faults.faults import Fault


class TestMap:
    """Which tests run which lines.

    Args:
      folder: The files that `test_lines` wrote, and the sources at that time.
      sources: The present sources; a line that has moved since is found.
    """

    __test__ = False

    def __init__(self, folder: Path, sources: Mapping[str, bytes]) -> None:
        self._folder = folder
        self._sources = sources
        self._old_lines: dict[str, dict[int, int]] = {}
        self.durations_s: dict[str, float] = {}
        self._tests: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for path in sorted(folder.glob("*.json")):
            recorded = json.loads(path.read_text(encoding="utf-8"))
            names = [test for test, _ in recorded["tests"]]
            self.durations_s |= dict(recorded["tests"])
            for file, lines in recorded["files"].items():
                for line, numbers in lines.items():
                    self._tests[file, int(line)].update(names[number] for number in numbers)

    def of_lines(self, file: str, lines: Iterable[int]) -> set[str]:
        """Return the tests that run one of these lines."""
        if file not in self._old_lines:
            self._old_lines[file] = self._find_old_lines(file)
        old = self._old_lines[file]
        return {test for line in lines for test in self._tests.get((file, old.get(line, 0)), ())}

    def _find_old_lines(self, file: str) -> dict[int, int]:
        path = self._folder / "source" / file
        old = path.read_bytes().splitlines() if path.exists() else []
        new = self._sources[file].splitlines()
        if old == new:
            return {line: line for line in range(1, len(new) + 1)}
        blocks = SequenceMatcher(None, old, new, autojunk=False)
        return {
            block.b + number + 1: block.a + number + 1
            for block in blocks.get_matching_blocks()
            for number in range(block.size)
        }

    def of_package(self, package: str) -> set[str]:
        """Return the tests in the folder of a package."""
        folder = f"tests/{package}/" if "/" in package else f"tests/unit/{package}/"
        return {test for test in self.durations_s if test.startswith(folder)}

    def within(self, tests: Iterable[str], package: str, budget_s: float) -> list[str]:
        """Return tests in the order to run them, until their durations reach the budget.

        Tests of the package come first, then short ones. Tests of one file follow each other.
        """
        own = self.of_package(package)
        ranked = sorted(tests, key=lambda test: (test not in own, self.durations_s[test], test))
        chosen: defaultdict[str, list[str]] = defaultdict(list)
        rest_s = budget_s
        for test in ranked:
            rest_s -= self.durations_s[test]
            if rest_s < 0 and chosen:
                break
            chosen[test.partition("::")[0]].append(test)
        return [test for tests_of_file in chosen.values() for test in tests_of_file]


class Users:
    """Which lines of functions use a constant or a class, also through other constants.

    Args:
      sources: The source of each file.
    """

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._lines: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self._constants: defaultdict[str, set[str]] = defaultdict(set)
        for file, source in sources.items():
            for statement in ast.parse(source).body:
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    continue
                targets = _targets(statement)
                for name, line in _names(statement):
                    if targets:
                        self._constants[name].update(targets)
                    else:
                        self._lines[name].add((file, line))

    def lines(self, name: str) -> set[tuple[str, int]]:
        """Return the files and lines that use a name."""
        names, pending = {name}, [name]
        while pending:
            new = self._constants[pending.pop()] - names
            names |= new
            pending += new
        return {place for each in names for place in self._lines[each]}


def _targets(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return set()
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _names(statement: ast.stmt) -> Iterator[tuple[str, int]]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno


def covering(fault: Fault, tests: TestMap, users: Users) -> set[str]:
    """Return the tests that run the place of a fault."""
    if fault.names:
        places = {place for name in fault.names for place in users.lines(name)}
        return {test for file, line in places for test in tests.of_lines(file, [line])}
    place, statement = fault.lines
    return tests.of_lines(fault.file, place) or tests.of_lines(fault.file, statement)
