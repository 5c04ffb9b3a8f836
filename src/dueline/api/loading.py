"""Import of applications."""

from dueline.api.application import Dueline
from dueline.api.config import load_object
from dueline.core.errors import ConfigError


def load_app(place: str) -> Dueline:
    """Import the application at MODULE:ATTR.

    Raises: ConfigError: the object cannot be imported, or is not an application.
    """
    found = load_object(place)
    if not isinstance(found, Dueline):
        raise ConfigError(
            f"{place} is a {type(found).__name__}, not a Dueline application.",
            hint="Use MODULE:ATTR of the object that Dueline(...) created.",
        )
    return found
