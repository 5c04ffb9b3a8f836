"""Discovery of the application and the store."""

import importlib
import importlib.util
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from dueline.api.connect import in_folder
from dueline.core.errors import ConfigError
from dueline.core.system import is_own_or_of_root

FILE_NAME = "dueline.toml"
STORE_VARIABLE = "DUELINE_STORE"
APP_VARIABLE = "DUELINE_APP"

KEYS: Final[Mapping[str, str]] = {
    "store": "URL of the store, such as `sqlite:///jobs.db`",
    "app": "Application, as `MODULE:ATTR` or `FILE.py:ATTR`; `ATTR` is `app` by default",
}
"""The keys of dueline.toml and what they mean."""


@dataclass(frozen=True, slots=True)
class Config:
    """The configured store URL and location of the application.

    folder: that of the dueline.toml that names the application, if it is above the current folder.
    """

    store: str | None
    app: str | None
    folder: Path | None = None


def find_config(
    *,
    store: str | None = None,
    app: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Config:
    """Find store and application: option, environment, then dueline.toml here or above.

    Relative paths in dueline.toml are relative to its folder.

    Args: store, app: values of the options. environment, folder: by default the process's own.

    Raises: ConfigError: a dueline.toml cannot be read, or has an unknown key.
    """
    environment = os.environ if environment is None else environment
    store = store or environment.get(STORE_VARIABLE)
    app = app or environment.get(APP_VARIABLE)
    if store and app:
        return Config(store, app)
    here = folder or Path.cwd()
    place, written = _read_file(here)
    if not app and "app" in written:
        _check_module(place, written["app"])
    if place == here:
        return Config(store or written.get("store"), app or written.get("app"))
    if not store and "store" in written:
        store = written["store"]
        with suppress(ConfigError):  # raised again where the store is opened
            store = in_folder(store, place)
    if app or "app" not in written:
        return Config(store, app)
    return Config(store, written["app"], place)


def _read_file(folder: Path) -> tuple[Path, Mapping[str, str]]:
    """Return the folder of the nearest dueline.toml, and its values."""
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
                if key not in KEYS or not isinstance(value, str):
                    raise ConfigError(
                        f"The file {path} has an unknown or invalid key {key!r}.",
                        hint=f"Valid keys are {' and '.join(KEYS)}, with strings as values.",
                    )
            return place, values
    return folder, {}


def _check_owner(path: Path) -> None:
    """Reject a file of another user, because it names code to import.

    Raises: ConfigError: the file or its folder belongs neither to this user nor to root, or any
      user may write there.
    """
    for entry in (path, path.parent):
        status = entry.stat()
        if status.st_mode & stat.S_IWOTH and os.name == "posix":
            raise ConfigError(
                f"{path} is not read: any user may write to {entry}, and it names code to import.",
                hint=f"Run chmod o-w {entry}, or pass --store and --app.",
            )
        if not is_own_or_of_root(status):
            raise ConfigError(
                f"{path} is not read: {entry} belongs to another user (uid {status.st_uid}).",
                hint="Change its owner with chown, or pass --store and --app.",
            )


def _check_module(folder: Path, app: str) -> None:
    """Reject a module that dueline.toml names, if another user wrote it or may write it.

    Raises: ConfigError: see `_check_owner`; modules that are not below the folder are not checked.
    """
    name = app.partition(":")[0]
    base = folder / name if name.endswith(".py") else folder.joinpath(*name.split("."))
    for path in (base, base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            _check_owner(path)


def load_object(place: str, folder: Path | None = None) -> Any:  # noqa: ANN401  (see callers)
    """Import `MODULE:ATTR` or `FILE.py:ATTR`; ATTR is `app` by default.

    folder: where modules and files are found, by default the current folder. It is added to the
    module path. A file is imported under its stem, so that its
    tasks have the same names as when it runs as a script.

    Raises: ConfigError: the module or attribute does not exist, or the import fails.
    """
    name, _, attribute = place.partition(":")
    if folder and name.endswith(".py"):
        name = str(folder / name)
    module = load_module(name, folder=folder or Path.cwd())
    loaded = getattr(module, attribute or "app", None)
    if loaded is None:
        raise ConfigError(
            f"The module {name!r} has no {attribute or 'app'!r}.",
            hint="Use MODULE:ATTR, such as tasks:app.",
        )
    return loaded


def load_module(
    name: str, what: str = "application module", *, folder: Path | None = None
) -> ModuleType:
    """Import a module, or a file whose name ends with .py.

    what: for messages. folder: added to the module path; by default the current folder, last.

    Raises: ConfigError: it does not exist, or the import fails.
    """
    try:
        return _import_file(Path(name)) if name.endswith(".py") else _import_module(name, folder)
    except ConfigError:
        raise
    except ModuleNotFoundError as error:
        hint = "Check the name and the current folder."
        if not f"{name}.".startswith(f"{error.name}."):
            hint = f"Install {error.name}, or correct the import."
        raise ConfigError(f"The {what} {name!r} cannot be imported: {error}.", hint=hint) from error
    except Exception as error:
        raise ConfigError(
            f"The {what} {name!r} fails while it is imported: {type(error).__name__}: {error}.",
            hint=_hint_of_failure(name),
        ) from error


def _hint_of_failure(name: str) -> str:
    if not name.endswith(".py"):
        return f"Run `python -c 'import {name}'` to see where."
    place = place_in_package(name)
    return f"The file is in a package: name its module, {place}." if place else ""


def task_modules(package: str, name: str) -> list[str]:
    """Return the modules below a package that have this name, or lie in a package of this name.

    Raises: ConfigError: the package cannot be imported, or has no such module.
    """
    import pkgutil  # noqa: PLC0415  (slow to load, and seldom needed)

    def found(prefix: str, paths: Sequence[str]) -> Iterator[str]:
        for module in pkgutil.iter_modules(paths, f"{prefix}."):
            if name in module.name.removeprefix(f"{package}.").split("."):
                yield module.name
            if module.ispkg:
                spec = importlib.util.find_spec(module.name)
                places = spec.submodule_search_locations if spec else None
                yield from found(module.name, list(places or ()))

    module = load_module(package, "package")
    modules = [*found(package, list(getattr(module, "__path__", ())))]
    if not modules:
        raise ConfigError(
            f"The package {package!r} has no module named {name!r}.",
            hint=f"Add {package}/{name}.py, or name the modules: app.include(...).",
        )
    return modules


def _import_module(name: str, folder: Path | None) -> ModuleType:
    if (place := str(folder or Path.cwd())) not in sys.path:
        sys.path.insert(0 if folder else len(sys.path), place)
    return importlib.import_module(name)


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"There is no file {path}.", hint="Use FILE.py:ATTR.")
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


def place_in_package(place: str) -> str | None:
    """Return the MODULE:ATTR of a FILE.py:ATTR in a package; None for any other place."""
    file, _, attribute = place.partition(":")
    folder, names = Path(file).resolve().parent, [Path(file).stem]
    while file.endswith(".py") and (folder / "__init__.py").is_file():
        folder, names = folder.parent, [folder.name, *names]
    return f"{'.'.join(names)}:{attribute or 'app'}" if len(names) > 1 else None


def place_of(target: object) -> str | None:
    """Return where an object can be imported from: MODULE:ATTR, FILE.py:ATTR, or None.

    A module outside packages is named by its file, so that another process finds it with any
    module path. A script that only imported the object is named only if no module has it. An
    object that has a `place` is imported from there.
    """
    if isinstance(place := getattr(target, "place", None), str):
        return place
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
            if file and not file.startswith("<"):  # as "<stdin>"
                script = f"{Path(file).resolve()}:{attribute}"
    return script


def module_name(name: str) -> str:
    """Return the name of a task's module; for a script, the stem of its file."""
    if name != "__main__":
        return name
    file = getattr(sys.modules["__main__"], "__file__", None)
    return Path(file).stem if file else name
