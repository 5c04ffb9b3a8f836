"""Chooses the tests that may notice a fault: those that run its function, the nearest first."""

from collections.abc import Mapping
from pathlib import PurePath

from tools.planted_faults.faults import Fault
from tools.planted_faults.suite import IN_CHILDREN, PACKAGES, Measured


def package_of(file: str) -> str:
    """Return the package of a file."""
    return next(package for package in PACKAGES if file.startswith(f"{package}/"))


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


def choose(fault: Fault, tests: Mapping[str, Measured]) -> list[str]:
    """Return the names of tests: first those of the module, then of its package, quick files first.

    For a constant, and for a function that no test runs in its own process, these are all tests
    that run anything of the package. Tests in its folder that start processes may run it, too.
    """
    package, place = package_of(fault.file), f"{fault.file} {fault.where}"
    folder = f"tests/{package}/" if package.startswith("stores/") else f"tests/unit/{package}/"
    own = (folder, *IN_CHILDREN) if package == "worker" else (folder,)
    chosen = {name for name, test in tests.items() if place in test.functions}
    runs_in_child = not chosen and fault.where != "module"
    if not chosen:
        prefix = f"{package}/"
        chosen = {
            name
            for name, test in tests.items()
            if any(function.startswith(prefix) for function in test.functions)
        }
    opaque = {name for name, test in tests.items() if test.is_opaque and name.startswith(own)}
    chosen |= opaque
    first = {file_of(name) for name in opaque} if runs_in_child else set()
    seconds = dict.fromkeys(map(file_of, chosen), 0.0)
    for name in chosen:
        seconds[file_of(name)] += tests[name].seconds

    def rank(name: str) -> tuple[bool, bool, bool, float, str]:
        file = file_of(name)
        is_of_module = PurePath(file).stem == f"test_{PurePath(fault.file).stem}"
        return not is_of_module, file not in first, not file.startswith(own), seconds[file], name

    return sorted(chosen, key=rank)
