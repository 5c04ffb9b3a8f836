"""How durable functions run in tests: suspended at every call, with steps that are replaced."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Double:
    """What a step does in a test: it raises `error`, or returns `value` if that is None."""

    value: object
    error: Exception | None = None

    def __call__(self, *_: object, **__: object) -> object:
        """Stand in for the function of a step."""
        if self.error is not None:
            raise self.error
        return self.value


class Rehearsal:
    """What a test changes of durable functions.

    Attributes:
      suspends: Whether functions are suspended after each record, and replayed up to there.
      doubles: What steps call instead of their functions, by the names of the steps.
    """

    def __init__(self, *, suspends: bool) -> None:
        self.suspends = suspends
        self.doubles: dict[str, Double] = {}

    def function_of(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what a step calls."""
        return self.doubles.get(name, function)
