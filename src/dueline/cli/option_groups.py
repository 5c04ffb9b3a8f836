"""Options that belong together, as one parameter of a command."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar

R = TypeVar("R")


def with_option_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Replace each parameter that is a dataclass by its fields, for Typer.

    The fields are options as a command's own parameters are: annotated, with defaults. The
    command receives them as one value.
    """
    parameters = list(inspect.signature(command).parameters.values())
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation
        for parameter in parameters
        if is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def ungrouped(**given: Any) -> R:  # noqa: ANN401  (whatever the command takes)
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    flat = list(_flat(parameters))
    result = command.__annotations__["return"]
    named = {parameter.name: parameter.annotation for parameter in flat}
    ungrouped.__annotations__ = named | {"return": result}
    vars(ungrouped)["__signature__"] = inspect.Signature(flat, return_annotation=result)
    return ungrouped


def _flat(parameters: list[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """Yield the parameters, the fields of a group in its place."""
    for parameter in parameters:
        if not is_dataclass(parameter.annotation):
            yield parameter
            continue
        for field in fields(parameter.annotation):
            yield inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=field.type,
            )
