"""What a process has loaded, and which names a package has for checkers."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType


def loaded(program: str) -> set[str]:
    """Name what a process has loaded at the end of a program."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(ended.stdout.splitlines()[-1].split())


def typed_names(package: ModuleType) -> dict[str, str | None]:
    """Return the names that a package imports for checkers only, with their modules."""
    source = Path(str(package.__file__)).read_text(encoding="utf-8")
    (typed,) = [node for node in ast.parse(source).body if isinstance(node, ast.If)][:1]
    return {
        alias.name: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
