"""From a place in the code to the application there."""

from dueline.api.application import Dueline
from dueline.api.config import load_object
from dueline.core.errors import ConfigError


def load_app(place: str) -> Dueline:
    """Import the application at MODULE:ATTR.

    Raises: ConfigError: it cannot be imported, or is something else.
    """
    found = load_object(place)
    if not isinstance(found, Dueline):
        raise ConfigError(
            f"{place} is a {type(found).__name__}, not a Dueline application.",
            hint="Name the object that Dueline(...) made, as MODULE:ATTR.",
        )
    return found
