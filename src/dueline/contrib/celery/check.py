"""Find what of an application of Celery does not map, in its source, with file and line.

Nothing is imported or run. The words are those that `dueline.contrib.celery` refuses.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from dueline.contrib.celery.application import Celery, retry_of
from dueline.contrib.celery.calls import CallWords
from dueline.contrib.celery.result import AsyncResult
from dueline.contrib.celery.settings import AS_EVER, DEFAULTS, check_setting
from dueline.contrib.celery.signals import Signal
from dueline.contrib.celery.task import BoundTask, CeleryTask
from dueline.contrib.celery.words import APP, CALL, OBJECT, SETTINGS, TASK, setting_word
from dueline.core.errors import BadInput, ConfigError

OURS: Final = "dueline.contrib.celery"
_SKIPPED: Final = ("node_modules", "site-packages", "venv")


class Finding(NamedTuple):
    """A place in the source whose word has no counterpart, and what to write instead."""

    path: Path
    line: int
    word: str
    finding: str


def _names_of(*functions: Callable[..., Any]) -> frozenset[str]:
    return frozenset(
        name for function in functions for name in inspect.signature(function).parameters
    )


_TASK_OPTIONS: Final = _names_of(Celery.made, retry_of) | {"name", "retry_kwargs", "autoretry_for"}
_CALL_OPTIONS: Final = _names_of(CallWords.call_options, CeleryTask.apply_async)
_APP_OPTIONS: Final = _names_of(Celery) | {"set_as_current"}
_CALLS: Final = ("apply_async", "send_task", "signature", "subtask")
_STARTS: Final = ("delay", "apply_async", "AsyncResult", "send_task")


def check(place: str) -> tuple[Sequence[Path], Sequence[Finding]]:
    """Return the files of an application, and what of them does not map.

    Args:
        place: MODULE:ATTR of the application; files of the same package are read, or of the folder
            of a module outside a package that import Celery.

    Raises:
        ConfigError: There is no such module.
    """
    files = _files_of(place.partition(":")[0])
    trees = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in files}
    tasks = {name for tree in trees.values() for name in _task_names(tree)}
    findings = {
        finding for path, tree in trees.items() for finding in _Reader(path, tree, tasks).read()
    }
    return files, sorted(findings)


def _files_of(module: str) -> Sequence[Path]:
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        raise ConfigError(f"There is no module {module!r} here.", hint="Run this where it is.")
    if spec.submodule_search_locations:
        return _sources(Path(next(iter(spec.submodule_search_locations))))
    origin = Path(str(spec.origin))
    others = [path for path in origin.parent.glob("*.py") if path != origin and _uses_celery(path)]
    return [origin, *sorted(others)]


def _sources(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*.py")
        if not any(
            part in _SKIPPED or part.startswith(".") for part in path.relative_to(folder).parts
        )
    )


def _uses_celery(path: Path) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")
    return "from celery" in text or "import celery" in text


def _is_task_decorator(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ("task", "shared_task")


def _task_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(map(_is_task_decorator, node.decorator_list)):
            yield node.name


class _Reader(ast.NodeVisitor):
    """Reads one file.

    Args:
        path: The file.
        tree: Its syntax.
        tasks: The names of all functions that are tasks.
    """

    def __init__(self, path: Path, tree: ast.AST, tasks: set[str]) -> None:
        self._path, self._tree, self._tasks = path, tree, tasks
        self._apps: set[str] = set()
        self._results: set[str] = set()
        self._findings: list[Finding] = []
        self._is_bound = False

    def read(self) -> list[Finding]:
        """Return the findings."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                name = _last_name(node.value.func)
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                if name == "Celery":
                    self._apps |= names
                elif name in _STARTS:
                    self._results |= names
        self.visit(self._tree)
        return self._findings

    def _add(self, node: ast.AST, word: str, finding: str) -> None:
        self._findings.append(Finding(self._path, getattr(node, "lineno", 1), word, finding))

    # Imports

    def visit_Import(self, node: ast.Import) -> None:
        """Check imported modules."""
        for name in node.names:
            self._imported(node, name.name, None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Check imported names."""
        for name in node.names:
            self._imported(node, node.module or "", name.name)

    def _imported(self, node: ast.AST, module: str, name: str | None) -> None:
        root, _, rest = module.partition(".")
        if root == "kombu":
            hint = 'Use queue= of the tasks and app.queue("mail", ...): the first job creates it.'
            self._add(node, f"{module} {name or ''}".strip(), f"There is no broker. {hint}")
        if root != "celery":
            return
        word = f"{module}.{name}" if name else module
        try:
            ours = import_module(f"{OURS}.{rest}" if rest else OURS)
            if name is not None and name != "*":
                getattr(ours, name)
        except ModuleNotFoundError:
            self._add(node, word, "It has no counterpart. Remove it.")
        except ImportError as error:
            self._add(node, word, _hint(str(error)))
        except AttributeError:
            self._add(node, word, "It has no counterpart. Remove it.")

    # Tasks

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Check the options of a task, and `self` in it."""
        before = self._is_bound
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _is_task_decorator(decorator):
                options = {word.arg: word.value for word in decorator.keywords if word.arg}
                self._options(options, _TASK_OPTIONS, TASK, "task")
                self._is_bound = _literal(options.get("bind")) is True
                if _literal(options.get("max_retries"), default=0) is None:
                    self._add(decorator, "max_retries=None", "Use max_retries=99.")
                for name in ("acks_late", "reject_on_worker_lost"):
                    if _literal(options.get(name), default=True) is False:
                        hint = 'Use app.queue("mail", deliver="at_most_once") and queue="mail".'
                        self._add(decorator, f"{name}=False", hint)
        self.generic_visit(node)
        self._is_bound = before

    def _options(
        self,
        given: Mapping[str, ast.expr],
        known: frozenset[str],
        words: Mapping[str, str],
        what: str,
    ) -> None:
        for name, value in given.items():
            if name not in known:
                word = words.get(name)
                finding = f"Use {word}." if word else "It has no counterpart. Remove it."
                self._add(value, f"{what}({name}=)", finding)

    # Calls, settings and attributes

    def visit_Call(self, node: ast.Call) -> None:
        """Check the options of calls and of applications, and settings."""
        name = _last_name(node.func)
        given = {word.arg: word.value for word in node.keywords if word.arg}
        if name == "Celery":
            self._options(given, _APP_OPTIONS, {"backend": SETTINGS["result_backend"]}, name)
            broker = _literal(given.get("broker"))
            if isinstance(broker, str) and "sqlite" not in broker and "postgres" not in broker:
                self._add(node, "Celery(broker=)", f"Use {SETTINGS['broker']}.")
        elif name in _CALLS and isinstance(node.func, ast.Attribute):
            self._options(given, _CALL_OPTIONS | {"immutable"}, CALL, name)
        elif name == "update" and _is_conf(node.func):
            settings = [pair for argument in node.args for pair in _items(argument)]
            for setting, value in [*settings, *given.items()]:
                self._setting(value, setting, value)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Check `app.conf.name = value` and `app.conf["name"] = value`."""
        for target in node.targets:
            if isinstance(target, ast.Attribute) and _last_name(target.value) == "conf":
                self._setting(target, target.attr, node.value)
            if isinstance(target, ast.Subscript) and _last_name(target.value) == "conf":
                self._setting(target, str(_literal(target.slice)), node.value)
        self.generic_visit(node)

    def _setting(self, node: ast.AST, name: str, value: ast.expr) -> None:
        literal = _literal(value, default=...)
        if name in AS_EVER:
            if literal is not ... and literal != AS_EVER[name]:
                self._add(node, name, f"Use {AS_EVER[name]!r}, which always holds.")
        elif name not in DEFAULTS:
            word = setting_word(name)
            self._add(node, name, f"Use {word}." if word else "It has no counterpart. Remove it.")
        elif literal is not ...:
            try:
                check_setting(name, literal)
            except BadInput as error:
                self._add(node, name, str(error))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Check attributes of applications, tasks, results and `self`."""
        owner = node.value
        if isinstance(owner, ast.Name):
            if owner.id in self._apps:
                self._attribute(node, owner.id, Celery, APP)
            elif owner.id in self._tasks:
                self._attribute(node, owner.id, CeleryTask, OBJECT)
            elif owner.id in self._results:
                self._attribute(node, owner.id, AsyncResult, OBJECT)
            elif owner.id == "self" and self._is_bound:
                self._attribute(node, owner.id, BoundTask, OBJECT)
        elif (
            self._is_bound
            and ast.unparse(owner) == "self.request"
            and node.attr not in ("id", "retries", "task", "queue", "headers")
        ):
            self._add(node, f"self.request.{node.attr}", "Use the arguments of the function.")
        self.generic_visit(node)

    def _attribute(
        self, node: ast.Attribute, owner: str, kind: type, words: Mapping[str, str]
    ) -> None:
        is_known = hasattr(kind, node.attr) or node.attr in ("conf", "main", "app", "task", "name")
        if not is_known and isinstance(node.ctx, ast.Load):
            word = words.get(node.attr)
            finding = f"Use {word}." if word else "It has no counterpart. Remove it."
            self._add(node, f"{owner}.{node.attr}", finding)

    # Signals

    def visit_Module(self, node: ast.Module) -> None:
        """Check the receivers of signals, then the rest."""
        for function in ast.walk(node):
            if isinstance(function, ast.FunctionDef):
                for decorator in function.decorator_list:
                    self._receiver(function, decorator)
        self.generic_visit(node)

    def _receiver(self, function: ast.FunctionDef, decorator: ast.expr) -> None:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if not (isinstance(called, ast.Attribute) and called.attr == "connect"):
            return
        signal = getattr(import_module(f"{OURS}.signals"), "__dict__", {}).get(
            _last_name(called.value)
        )
        if not isinstance(signal, Signal):
            return
        arguments = function.args
        for given in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if given.arg not in signal.names:
                said = f"The signal has {', '.join(signal.names)}; see @app.on({signal.hook!r})."
                self._add(given, f"{signal.name}({given.arg}=)", said)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_conf(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and _last_name(node.value) == "conf"


def _literal(node: ast.expr | None, *, default: object = None) -> Any:
    if node is None:
        return default
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ... if default is ... else default


def _items(node: ast.expr) -> Iterable[tuple[str, ast.expr]]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield str(key.value), value


def _hint(text: str) -> str:
    """Return what an error says to do."""
    _, sign, rest = text.partition(". Use ")
    return f"Use {rest}" if sign else text
