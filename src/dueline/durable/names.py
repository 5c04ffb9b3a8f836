"""Names that applications give in durable functions."""

from typing import Final

from dueline.core.errors import BadInput

NAME_CHARACTERS_MAX: Final = 200

STATE: Final = "state"
"""Key of the state that a function shows."""


def check_name(name: object, what: str) -> str:
    """Return a name; raise BadInput if it cannot be one."""
    is_name = isinstance(name, str) and name.isprintable() and "/" not in name
    if not isinstance(name, str) or not is_name or not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise BadInput(
            f"{name!r:.80} is not a valid name of a {what}.",
            hint=f"Use 1 to {NAME_CHARACTERS_MAX} printable characters without '/'.",
        )
    return name
