"""Import of applications."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dueline.api.application import Dueline
from dueline.api.config import load_object
from dueline.core.errors import ConfigError
from dueline.core.logging import enable_loggers

_MADE: Final = re.compile(r"^(\w+)(?: *: *\w+)? *= *(?:dueline\.)?Dueline\(", re.MULTILINE)
_FILES_MAX: Final = 200
_SHOWN: Final = 5


def load_app(place: str, folder: Path | None = None) -> Dueline:
    """Import the application at MODULE:ATTR. folder: of the module, by default the current one.

    Raises: ConfigError: the object cannot be imported, or is not an application.
    """
    try:
        app = _expect_app(place, load_object(place, folder))
    except ConfigError as error:
        apps = apps_here()
        if not apps or {place, f"{place}:app"} & {*apps}:  # found, and it fails
            raise
        raise ConfigError(error.message, hint=error.hint + found_here(apps)) from error
    enable_loggers()
    return app


def found_here(apps: Sequence[str]) -> str:
    """Return the end of a hint that names applications; "" without any."""
    return f" Found here: {', '.join(apps[:_SHOWN])}." if apps else ""


def _expect_app(place: str, loaded: object) -> Dueline:
    if not isinstance(loaded, Dueline):
        raise ConfigError(
            f"{place} is a {type(loaded).__name__}, not a Dueline application.",
            hint="Use MODULE:ATTR of the object that Dueline(...) created.",
        )
    return loaded


def apps_here() -> list[str]:
    """Return the applications that Python files here and one folder below seem to make."""
    apps: list[str] = []
    folder = Path.cwd()
    for path in sorted([*folder.glob("*.py"), *folder.glob("[!.]*/*.py")])[:_FILES_MAX]:
        module = ".".join(path.relative_to(folder).with_suffix("").parts)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        apps += [f"{module.removesuffix('.__init__')}:{name}" for name in _MADE.findall(text)]
    return apps
