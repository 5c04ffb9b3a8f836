"""The functions that the server runs, see `lua/`."""

from functools import lru_cache
from hashlib import sha256
from importlib import resources
from typing import Final

SCHEMA_VERSION: Final = "1"
"""The version of the keys and rows."""

_FILES: Final = ("base", "row", "groups", "claims", "reads", "upkeep")


@lru_cache
def library() -> tuple[str, str]:
    """Return the name of the library, and its text.

    The name holds the version of the schema and a digest of the text: processes of several versions
    use one server, each with its own functions.
    """
    folder = resources.files(__package__).joinpath("lua")
    text = "\n".join(folder.joinpath(f"{name}.lua").read_text("utf-8") for name in _FILES)
    name = f"dueline_{SCHEMA_VERSION}_{sha256(text.encode()).hexdigest()[:12]}"
    text = text.replace("@SCHEMA", SCHEMA_VERSION).replace("@_", f"{name}_")
    return name, f"#!lua name={name}\n{text}"
