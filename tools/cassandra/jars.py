"""The server's jars, fetched once a release."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

CASSANDRA_VERSION = "5.0.9"
"""The release that runs unless another one is asked for."""

JAVA_VERSION = 17
FETCH_TIMEOUT_S = 600

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".cache" / "cassandra"
POM = Path(__file__).with_name("pom.xml")


class CassandraError(Exception):
    """Cassandra could not be started."""


def find_java() -> str:
    """The Java 17 program: JAVA_HOME, else the search path.

    Raises CassandraError: there is none, or it is another version.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    wanted = f"install a Java {JAVA_VERSION} runtime, or point JAVA_HOME at one"
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the search path"
        raise CassandraError(f"There is no java {where}: {wanted}.")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(answer.stderr)
    if version != JAVA_VERSION:
        raise CassandraError(
            f"Cassandra runs here on Java {JAVA_VERSION} and {java} is {version or 'unknown'}: "
            f"{wanted}."
        )
    return java


def java_version(answer: str) -> int | None:
    """The major version in what `java -version` prints, or None."""
    match = re.search(r'version "(\d+)', answer)
    return int(match.group(1)) if match else None


def fetch_jars(cache: Path = CACHE, version: str = CASSANDRA_VERSION) -> Path:
    """Fetch the jars of a release through Maven unless they are there already.

    Args:
        cache: the folder above the folders of the jars, one for each release
        version: the release, such as 5.0.9

    Returns the folder of the jars (100 jars, 67 MB).

    Raises CassandraError: Maven is missing or failed. Nothing half fetched is left behind.
    """
    if not re.fullmatch(r"[0-9][0-9A-Za-z.-]*", version):
        raise CassandraError(f"{version!r} is not a release of Cassandra: write one such as 5.0.9.")
    jars = cache / f"jars-{version}"
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise CassandraError(
            "There is no mvn on the search path: install Apache Maven to fetch "
            f"the jars of Cassandra {version} (once, 67 MB)."
        )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as unfinished:
        fetched = Path(unfinished) / "jars"
        _run_maven(maven, fetched, version)
        # The rename makes the folder appear whole; another process may have been faster.
        try:
            fetched.rename(jars)
        except OSError:
            if not jars.is_dir():
                raise
    return jars


def _run_maven(maven: str, folder: Path, version: str) -> None:
    command = [
        maven,
        *("-q", "-B", "-f", str(POM), "dependency:copy-dependencies"),
        f"-Dcassandra.version={version}",
        *("-DincludeScope=runtime", f"-DoutputDirectory={folder}"),
    ]
    try:
        answer = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as slow:
        raise CassandraError(f"Maven took more than {FETCH_TIMEOUT_S} s: try again.") from slow
    if answer.returncode != 0 or not (folder / f"cassandra-all-{version}.jar").is_file():
        tail = "\n".join(answer.stdout.splitlines()[-15:])
        raise CassandraError(f"Maven could not fetch Cassandra {version}; it said:\n{tail}")
