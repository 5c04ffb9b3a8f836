"""Which numbers a producer has used.

A call that its producer was killed in may come to be later, though it was never written down that
anything was asked of the store for it: a record with its unique key holds its whole row. So each
life begins with a number that no call of the lives before it had.
"""

from pathlib import Path


def last_used(folder: Path, base: int) -> int:
    """Read the last number that a producer used; the one before its first, if none."""
    path = _file(folder, base)
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return int(whole.rpartition(b"\n")[2] or base - 1)


def use(folder: Path, base: int, last: int) -> None:
    """Write down that a call has the numbers up to `last`, before it is made."""
    with _file(folder, base).open("ab") as file:
        file.write(b"%d\n" % last)


def _file(folder: Path, base: int) -> Path:
    return folder / f"{base}.used"
