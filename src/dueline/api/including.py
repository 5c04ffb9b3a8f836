"""Modules with tasks, which an application names and imports later."""

from collections.abc import Callable, Iterable
from typing import Any

from dueline.api.config import load_module, task_modules
from dueline.api.connection import Connection
from dueline.api.task_declaration import are_names
from dueline.core.errors import BadInput


class IncludeMethods(Connection):
    """Methods of an application for modules with its tasks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  (as its base)
        super().__init__(*args, **kwargs)
        self._included: list[Callable[[], Iterable[str]]] = []

    def include(self, *modules: str) -> None:
        """Name modules with tasks.

        They are imported when a worker starts or the command line asks for a task, not now: they
        may import this application.

        Args:
            *modules: Names such as "shop.tasks".

        Raises:
            BadInput: A name is not a string.
        """
        if not are_names(modules):
            raise BadInput(
                f"`include` takes names of modules (got {modules!r:.80}).",
                hint='Use app.include("shop.tasks").',
            )
        self._included.append(lambda: modules)

    def discover(self, package: str, *, name: str = "tasks") -> None:
        """Include all modules called `tasks` of a package, at any depth.

        Modules in a package of that name are included too. They are found and imported as those
        of `include`.

        Args:
            package: Name of the package, such as "shop".
            name: Name of the modules.

        Raises:
            BadInput: A name is not a string.
        """
        if not are_names((package, name)):
            raise BadInput(
                f"`discover` takes the name of a package (got {package!r:.80}).",
                hint='Use app.discover("shop").',
            )
        self._included.append(lambda: task_modules(package, name))

    def _import_included(self) -> None:
        while self._included:
            names = self._included.pop(0)  # first: the modules may ask for the tasks themselves
            try:
                for name in names():
                    load_module(name, "included module")
            except BaseException:
                self._included.insert(0, names)
                raise
