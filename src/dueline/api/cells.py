"""A module made of the cells of a notebook, which child processes of a worker import.

A notebook has no file. What its tasks need is taken from the cells that have run: the definitions
of the tasks, and every definition, import and assignment that they use. Nothing else runs again in
a child process, such as calls that enqueue jobs or start workers.
"""

import ast
import atexit
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_PRELUDE: Final = """\
import sys
sys.modules["__main__"] = sys.modules[__name__]
__name__ = "__main__"
del __file__, sys
"""
"""Its functions have the module, and its tasks the names, that they have in the notebook."""

_REGISTERING: Final = frozenset({"add", "discover", "include", "install", "register_type", "use"})
"""Functions and methods whose calls tell an application something that tasks need."""

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_interactive(module: str) -> bool:
    """Return whether functions of a module are defined in a notebook or a shell."""
    return module == "__main__" and not hasattr(sys.modules["__main__"], "__file__")


def place_of_cells(app: object) -> str | None:
    """Write a module with an application of a notebook; return its FILE.py:ATTR.

    Returns:
        None if the application is no global of a notebook, or the cells are not kept, as
        in a plain shell.
    """
    names = vars(sys.modules["__main__"])
    cells = names.get("In")
    if not is_interactive("__main__") or not isinstance(cells, list):
        return None
    # Few processes are notebooks, and these modules take a megabyte.
    import shutil  # noqa: PLC0415
    from tempfile import mkdtemp  # noqa: PLC0415

    # IPython keeps values of cells under names with an underscore.
    own = {name for name, value in names.items() if value is app and not name.startswith("_")}
    if not own:
        return None
    wanted = own | {name for name, value in names.items() if hasattr(type(value), "enqueue_many")}
    source = needed_source(cells, wanted, own)
    folder = Path(mkdtemp(prefix="dueline-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "cells.py"
    path.write_text(_PRELUDE + source, encoding="utf-8")
    return f"{path}:{min(own)}"


def needed_source(cells: Sequence[str], wanted: set[str], apps: set[str]) -> str:
    """Return the statements of cells that bind some names, and those that these need.

    Args:
        cells: The cells in the order of their runs.
        wanted: The names.
        apps: Those of the application, whose decorators and registrations are needed too.
    """
    statements = [*_latest([*_statements(cells)])]
    needed, chosen = set(wanted), set[int]()
    while True:
        before = len(chosen)
        for place, statement in enumerate(statements):
            if place not in chosen and _is_needed(statement, needed, apps):
                chosen.add(place)
                needed |= _names(statement, ast.Load)
        if len(chosen) == before:
            break
    return "\n".join(ast.unparse(statements[place]) for place in sorted(chosen)) + "\n"


def _statements(cells: Sequence[str]) -> Iterator[ast.stmt]:
    for cell in cells:
        try:
            yield from ast.parse(cell).body
        except (SyntaxError, ValueError):  # it did not run either
            continue


def _latest(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements whose names no later one defines anew, as a cell that ran again does."""
    last: dict[str, int] = {}
    for place, statement in enumerate(statements):
        if not isinstance(statement, ast.AugAssign):
            bound = _bound(statement)
            last |= dict.fromkeys(bound - _names(statement, ast.Load), place)
    for place, statement in enumerate(statements):
        bound = _bound(statement)
        if not bound or any(last.get(name, place) <= place for name in bound):
            yield statement


def _is_needed(statement: ast.stmt, needed: set[str], apps: set[str]) -> bool:
    if isinstance(statement, _Definition):
        is_decorated = any(_names(each, ast.Load) & apps for each in statement.decorator_list)
        return is_decorated or statement.name in needed
    if isinstance(statement, ast.Expr):
        call = statement.value
        if not isinstance(call, ast.Call):
            return False
        called = call.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return name in _REGISTERING and bool(_names(statement, ast.Load) & (needed | apps))
    return bool(_bound(statement) & needed)


def _bound(statement: ast.stmt) -> set[str]:
    """Return the globals that a statement binds or changes."""
    if isinstance(statement, _Definition):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(each.asname or each.name).partition(".")[0] for each in statement.names}
    bound = _names(statement, ast.Store)
    for target in _targets(statement):
        if isinstance(target, ast.Attribute | ast.Subscript):
            bound |= _names(target.value, ast.Load)
    for inner in ast.walk(statement):
        if isinstance(inner, _Definition | ast.Import | ast.ImportFrom) and inner is not statement:
            bound |= _bound(inner)
    return bound


def _targets(statement: ast.stmt) -> Sequence[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AugAssign) else []


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, context)
    }
