"""The parameter of a handler that gets its Context."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from dueline.core.errors import BadInput

_CONTEXT_NAMES = ("ctx", "self")
"""Names by which other queues pass the job."""


def takes_first(kind: type, function: Callable[..., Any], name: str) -> bool:
    """Return whether the first parameter of a function has a type.

    Raises: BadInput: another parameter has it, or the first one seems to miss its annotation.
    """
    try:
        hints = get_type_hints(function)
    except NameError:
        return False  # Arguments reports the name
    names = [*inspect.signature(function).parameters]
    is_own = inspect.isfunction(function) and names and names[0] not in hints
    if is_own and names[0] in _CONTEXT_NAMES:
        raise BadInput(
            f"The first parameter of {name} is `{names[0]}` without an annotation.",
            hint="Annotate it, `ctx: Context`, to get the job; use another name for an argument.",
        )
    places = [place for place, parameter in enumerate(names) if hints.get(parameter) is kind]
    if places not in ([], [0]):
        raise BadInput(
            f"The task {name} takes its Context as parameter {places[-1] + 1}.",
            hint="Make it the first parameter, and only that.",
        )
    return bool(places)
