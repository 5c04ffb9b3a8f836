"""Run the unit tests with other versions of Python, where they are installed.

A version is looked for on the path, among those of pyenv and those of uv. Its environment is
`.venv-VERSION`, with the pinned dependencies. A version that is not installed is named and left
out: `uv python install VERSION` may get it. `3.13t` is the free-threaded build of 3.13.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = ("tests/unit", "tests/stores/sqlite", "--ignore", "tests/unit/spark")
LEFT_OUT = "not mutants and not long"


def main() -> int:
    """Return 1 if tests failed, 2 if no version was found."""
    parser = argparse.ArgumentParser(prog="python -m tools.pythons", description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--workers", default="2", help="how many tests run at once")
    given = parser.parse_args()
    pythons = {version: find(version) for version in given.versions}
    for version in [version for version, python in pythons.items() if python is None]:
        print(f"Python {version} is not installed: not tested.")
    codes = [test(version, python, given.workers) for version, python in pythons.items() if python]
    return max(codes) if codes else 2


def find(version: str) -> str | None:
    """Return the path of an interpreter of this version; None if none works."""
    for path in _places(version):
        code = "import sys; print('%d.%d' % sys.version_info[:2] + sys.abiflags)"
        ended = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if ended.returncode == 0 and ended.stdout.strip() == version:
            return path
    return None


def _places(version: str) -> Iterator[str]:
    if (path := shutil.which(f"python{version}")) is not None:
        yield path
    yield from map(
        str, sorted(Path.home().glob(f".pyenv/versions/{version.rstrip('t')}.*/bin/python"))
    )
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "python", "find", "--no-python-downloads", version]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        yield ended.stdout.strip()


def test(version: str, python: str, workers: str) -> int:
    """Make the environment, run the tests in it, and return 1 if one failed."""
    folder = f".venv-{version}"
    make = ["make", "--no-print-directory", f"VENV={folder}", f"PYTHON={python}"]
    subprocess.run([*make, f"{folder}/.project"], check=True)
    print(f"Python {version}:", flush=True)
    options = ("-q", "-n", workers, "--dist", "loadgroup", "-m", LEFT_OUT)
    command = [f"{folder}/bin/python", "-m", "pytest", *options, *TESTS]
    return int(subprocess.run(command, check=False).returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
