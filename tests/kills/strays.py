"""How many answers of Cassandra's nodes belonged to no request.

Each process notes those that it dropped in a file of its own, a byte each: it may be killed at any
moment.
"""

import os
from pathlib import Path

SUFFIX = ".strays"


def note_strays(folder: Path) -> None:
    """Have this process note the answers that it drops."""
    from dueline.stores.cassandra.guard import STRAY_ANSWERS  # noqa: PLC0415  (needs the driver)

    path = folder / f"{os.getpid()}{SUFFIX}"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    drop = STRAY_ANSWERS.drop

    def drop_and_note() -> int:
        os.write(file, b".")
        return drop()

    STRAY_ANSWERS.drop = drop_and_note  # type: ignore[method-assign]


def strays_in(folder: Path) -> int:
    """Count the answers that all processes dropped."""
    return sum(path.stat().st_size for path in folder.glob(f"*{SUFFIX}"))
