"""Constraints of arguments and settings, and the message for a value that breaks one.

A constraint is a `msgspec.Meta` on the type of a field. Its description completes the sentence
"`name` must be ..."; its title names the argument where the field has another name.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from dueline.core.clock import SECOND_US
from dueline.core.codec import learned
from dueline.core.errors import BadInput

_ELEMENT = re.compile(r"at `\$\[(\d+)\]")


def constraint(description: str, hint: str = "", *, name: str | None = None, **bounds: Any) -> Any:  # noqa: ANN401  (a Meta's own)
    """Return the `Meta` of an argument; `bounds` are those of `msgspec.Meta`."""
    return msgspec.Meta(title=name, description=description, extra={"hint": hint}, **bounds)


def integer(least: int, most: int, hint: str = "") -> Any:  # noqa: ANN401
    """Return the constraint of an integer from `least` to `most`."""
    text = f"an integer from {least} to {most}"
    return constraint(text, hint or f"Use {least} to {most}.", ge=least, le=most)


Count = Annotated[int, constraint("an integer of at least 1", "Use 1 or more.", ge=1)]
CountOrNone = Annotated[int, constraint("an integer of at least 0", "Use 0 or more.", ge=0)]


def check_value(value: object, kind: Any, name: str) -> None:  # noqa: ANN401  (a type)
    """Check one argument against its type.

    Raises: BadInput: the value breaks the constraint.
    """
    try:
        learned(lambda: msgspec.convert(value, kind))
    except msgspec.ValidationError as error:
        raise bad_value(value, kind, name, str(error)) from None


def check_constraints(made: object) -> None:
    """Check the fields of a dataclass or named tuple whose types have constraints.

    Raises: BadInput: a field breaks its constraint.
    """
    for name, kind in constraints_of(type(made)).items():  # type: ignore[arg-type]  # the type is hashable
        check_value(getattr(made, name), kind, name)


@lru_cache
def constraints_of(kind: type[Any]) -> Mapping[str, Any]:
    """Return the types of the fields that have constraints, by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint for name, hint in hints.items() if meta_of(hint) is not None}


def meta_of(kind: Any) -> msgspec.Meta | None:  # noqa: ANN401  (a type)
    """Return the constraint of a type; None if it has none."""
    if get_origin(kind) is Literal:
        words = ", ".join(get_args(kind))
        return msgspec.Meta(description=f"one of {words}", extra={"hint": f"Use one of {words}."})
    metas = (meta for meta in getattr(kind, "__metadata__", ()) if isinstance(meta, msgspec.Meta))
    return next(metas, None)


def shown(value: object) -> str:
    """Return the `repr` of a value, cut to 80 characters, also of an integer of many digits."""
    try:
        return f"{value!r:.80}"
    except ValueError:
        return "a huge number"


def bad_value(value: object, kind: Any, name: str, error: str = "") -> BadInput:  # noqa: ANN401
    """Return the error for a value that breaks its type's constraint. error: msgspec's own."""
    meta = meta_of(kind)
    assert meta is not None
    if (element := _ELEMENT.search(error)) and isinstance(value, tuple | list):
        value = value[int(element[1])]
    is_duration = name.endswith("_us") and type(value) in (int, float)
    got = f"{value / SECOND_US} s" if is_duration else shown(value)  # type: ignore[operator]
    return BadInput(
        f"`{meta.title or name.removesuffix('_us')}` must be {meta.description} (got {got}).",
        hint=(meta.extra or {})["hint"],
    )
