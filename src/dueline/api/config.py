"""Finding the app and the store."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dueline.core.errors import ConfigError

FILE_NAME = "dueline.toml"
STORE_VARIABLE = "DUELINE_STORE"
APP_VARIABLE = "DUELINE_APP"

_KEYS = ("store", "app")


@dataclass(frozen=True, slots=True)
class Config:
    """What was found without looking into the app: a store's address, an app's place."""

    store: str | None
    app: str | None


def find_config(
    *,
    store: str | None = None,
    app: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Config:
    """Look for store and app: flag, then environment, then dueline.toml here or above.

    Args: store, app: what flags said. environment, folder: the process's own by default.

    Raises: ConfigError: a dueline.toml that cannot be read, or holds something unknown.
    """
    environment = os.environ if environment is None else environment
    store = store or environment.get(STORE_VARIABLE)
    app = app or environment.get(APP_VARIABLE)
    if store and app:
        return Config(store, app)
    written = _read_file(folder or Path.cwd())
    return Config(store or written.get("store"), app or written.get("app"))


def _read_file(folder: Path) -> Mapping[str, str]:
    for place in (folder, *folder.parents):
        path = place / FILE_NAME
        if path.is_file():
            import tomllib  # noqa: PLC0415  (slow to load, and seldom needed)

            try:
                _check_owner(path)
                values = tomllib.loads(path.read_text(encoding="utf-8"))
            except RecursionError as error:
                raise ConfigError(
                    f"The file {path} is nested too deeply.", hint="Correct or remove it."
                ) from error
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise ConfigError(
                    f"The file {path} cannot be read: {error}.", hint="Correct or remove it."
                ) from error
            for key, value in values.items():
                if key not in _KEYS or not isinstance(value, str):
                    raise ConfigError(
                        f"The file {path} has an entry {key!r} that means nothing here.",
                        hint=f"It may hold the texts {' and '.join(_KEYS)}.",
                    )
            return values
    return {}


def _check_owner(path: Path) -> None:
    """Refuse a file that another user wrote: it names code to import.

    Raises: ConfigError: the file or its folder belongs neither to this user nor to root.
    """
    for one in (path, path.parent):
        if (owner := one.stat().st_uid) not in (os.geteuid(), 0):
            raise ConfigError(
                f"{path} is not read: {one} belongs to another user (uid {owner}).",
                hint="Make it your own with chown, or give --store and --app.",
            )


def load_object(place: str) -> Any:  # noqa: ANN401  (the caller checks what it is)
    """Import `MODULE:ATTR`, or `FILE.py:ATTR`; ATTR is `app` where it is left out.

    The current folder is put on the module path. A file is imported under its stem, which is
    how its tasks are named when it runs as a script.

    Raises: ConfigError: no such module or attribute, or it fails while it is imported.
    """
    name, _, attribute = place.partition(":")
    try:
        module = _import_file(Path(name)) if name.endswith(".py") else _import_module(name)
    except ConfigError:
        raise
    except ModuleNotFoundError as error:
        hint = "Is the name right, and is this the folder it is imported from?"
        if error.name != name:
            hint = f"It imports {error.name}: install that, or correct the import."
        raise ConfigError(
            f"The app's module {name!r} cannot be imported: {error}.", hint=hint
        ) from error
    except Exception as error:
        raise ConfigError(
            f"The app's module {name!r} fails while it is imported: "
            f"{type(error).__name__}: {error}.",
            hint=f"Run `python -c 'import {name}'` to see where." if ".py" not in name else "",
        ) from error
    found = getattr(module, attribute or "app", None)
    if found is None:
        raise ConfigError(
            f"The module {name!r} has no {attribute or 'app'!r}.",
            hint="Name the app as MODULE:ATTR, such as tasks:app.",
        )
    return found


def _import_module(name: str) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"There is no file {path}.", hint="Name the app as FILE.py:ATTR.")
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.insert(0, folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]  # as Python does with a module that fails
        raise
    return module


def place_of(target: object) -> str | None:
    """Find where an object can be imported from: MODULE:ATTR or FILE.py:ATTR; None: nowhere.

    A module that lies in no package is named by its file, so that another process finds it
    whatever its path is. A script that merely imported the object is named only where no
    module has it.
    """
    script: str | None = None
    for name, module in list(sys.modules.items()):
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is not target or attribute.startswith("__"):
                continue
            file = getattr(module, "__file__", None)
            if name not in ("__main__", "__mp_main__"):
                if file and Path(file).name == f"{name}.py":
                    return f"{Path(file).resolve()}:{attribute}"
                return f"{name}:{attribute}"
            if file:
                script = f"{Path(file).resolve()}:{attribute}"
    return script


def module_name(name: str) -> str:
    """Name the module a task is defined in; a script goes by its file's stem."""
    if name != "__main__":
        return name
    file = getattr(sys.modules["__main__"], "__file__", None)
    return Path(file).stem if file else name
