"""Chains, groups and chords: dueline's pipelines and groups."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from dueline.contrib.celery.calls import CallWords, current_app
from dueline.contrib.celery.result import AsyncResult
from dueline.contrib.celery.words import NAMES, WORKFLOW, names_elsewhere, refuse, refuse_attribute
from dueline.core.errors import BadInput
from dueline.workflows import parts
from dueline.workflows.parts import Part


class Canvas(ABC):
    """What can be started, and combined by `|`."""

    @property
    @abstractmethod
    def app(self) -> CallWords:
        """The application of its tasks."""

    @abstractmethod
    def part(self, *args: Any) -> Part:
        """Return it as a part of a workflow; args: come first in its first task."""

    def __or__(self, other: "Canvas") -> "chain":
        return chain(self, other)

    def delay(self, *args: Any) -> AsyncResult:
        """Start it."""
        return self.apply_async(args)

    def apply_async(
        self, args: Sequence[Any] = (), *, link_error: "Canvas | None" = None, **options: Any
    ) -> AsyncResult:
        """Start it.

        Args:
            args: Arguments that come first in its first task.
            link_error: Signature of the task that runs if it fails; the description of the
                failure, a dict, is its first argument.
            **options: Of a group, those of its tasks. Other workflows have none; give options to
                the signatures: `send.s(1).set(queue="mail")`.
        """
        whole = self.set(**options) if options else self
        return AsyncResult(self.app.start(with_error(whole.part(*args), link_error)))

    def set(self, **options: Any) -> "Canvas":
        """Return it with options of `apply_async`."""
        refuse(options, dict.fromkeys(options, "set(...) of its signatures"), "A workflow")
        return self

    def __call__(self, *args: Any) -> AsyncResult:
        """Start it."""
        return self.apply_async(args)

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute(name, WORKFLOW, f"A {type(self).__name__}")


class _Several(Canvas):
    def __init__(self, *tasks: Canvas | Iterable[Canvas]) -> None:
        flat: list[Canvas] = []
        for task in tasks:
            flat += [task] if isinstance(task, Canvas) else task
        self.tasks = flat

    @property
    def app(self) -> CallWords:
        """The application of the first task."""
        return self.tasks[0].app if self.tasks else current_app()

    def __len__(self) -> int:
        return len(self.tasks)


class chain(_Several):  # noqa: N801  (Celery's name)
    """Tasks in sequence; the result of each is the first argument of the next."""

    def part(self, *args: Any) -> Part:
        """Return it as a pipeline."""
        if not self.tasks:
            raise BadInput("The chain has no tasks.", hint="Pass signatures.")
        first, *rest = self.tasks
        return parts.pipeline(first.part(*args), *(canvas.part() for canvas in rest))


class group(_Several):  # noqa: N801  (Celery's name)
    """Tasks in parallel; the result is the list of their results."""

    def set(self, **options: Any) -> "group":
        """Return it with options for each of its tasks."""
        return group(task.set(**options) for task in self.tasks)

    def part(self, *args: Any) -> Part:
        """Return it as a group."""
        return parts.group(*(task.part(*args) for task in self.tasks))


class chord(Canvas):  # noqa: N801  (Celery's name)
    """Tasks in parallel, then a callback with the list of their results."""

    def __init__(self, header: group | Iterable[Canvas], body: Canvas | None = None) -> None:
        self.header: group = header if isinstance(header, group) else group(header)
        self.body = body

    @property
    def app(self) -> CallWords:
        """The application of the first task."""
        return self.header.app

    def part(self, *args: Any) -> Part:
        """Return it as a pipeline of a group and the callback."""
        if self.body is None:
            raise BadInput("The chord has no callback.", hint="Use chord(tasks)(callback.s()).")
        return parts.pipeline(self.header.part(*args), self.body.part())

    def __call__(self, body: Canvas | None = None) -> AsyncResult:
        """Start it, with a callback."""
        return chord(self.header, body or self.body).apply_async()


def with_error(part: Part, link_error: Canvas | None) -> Part:
    """Return a part followed by a task that runs if it fails."""
    if link_error is None:
        return part
    return parts.pipeline(part, on_failure=link_error.part())  # type: ignore[arg-type]  # checked


__getattr__ = names_elsewhere(NAMES, __name__)
