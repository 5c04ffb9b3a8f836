"""An application with small tasks for workflows."""

import time
from collections.abc import Callable
from typing import Any

from dueline import Dueline, Flow, Retry


def with_tasks(app: Dueline) -> Dueline:
    """Register the small tasks in an application; the one that fails does, until it is told."""
    FAILING["fails"] = True
    for function in (add, total, join, tell):
        app.task(name=function.__name__)(function)
    app.task(name="fail", retry=Retry(attempts=1))(fail)
    return app


def add(a: int, b: int = 1) -> int:
    return a + b


def total(numbers: list[int]) -> int:
    return sum(numbers)


def join(*parts: Any) -> str:  # noqa: ANN401
    return " ".join(map(str, parts))


def tell(failure: dict[str, Any], word: str) -> str:
    return f"{word}: {failure['error']}"


FAILING = {"fails": True}


def fail(a: int) -> int:
    if FAILING["fails"]:
        raise ValueError(f"not {a}")
    return -a


def step(app: Dueline, task: str, *args: object) -> Any:  # noqa: ANN401
    return app.task_named(task).step(*args)


def ran(app: Dueline, part: Any) -> Flow:  # noqa: ANN401
    """Start a workflow, and work until nothing is due."""
    flow = app.start(part)
    app.run_worker(burst=True)
    return flow


def until(app: Dueline, is_so: Callable[[], bool]) -> None:
    """Work until something is so."""
    give_up_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < give_up_s
        app.run_worker(burst=True)
