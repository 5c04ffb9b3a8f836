"""Which mutant was caught by what, as a table at the end of a run."""

from collections.abc import Callable, Iterable

PROPERTY = "mutant"


def tell(record: Callable[[str, object], None], mutant: str, noticed: str, took_s: float) -> None:
    """Note in a test's report what caught a mutant, and in how many seconds of a processor."""
    record(PROPERTY, f"{mutant:<48} {took_s:6.2f} s  {noticed}")


def lines(properties: Iterable[tuple[str, object]]) -> list[str]:
    """Pick what was told, in the order of the rules."""
    return sorted(str(value) for name, value in properties if name == PROPERTY)
