"""Modules that need packages of an extra."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str, *, is_package: bool = False) -> Iterator[None]:
    """Name an extra in the error for a package that is not installed.

    Args:
        name: The extra, as in `pip install 'dueline[name]'`.
        is_package: It is the name of a package instead, which brings all that is missing.

    Raises:
        ModuleNotFoundError: A package other than dueline is missing; the message says what to
            install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "dueline").partition(".")[0]
        if package == "dueline":
            raise
        name = name if is_package else f"'dueline[{name}]'"
        raise ModuleNotFoundError(
            f"The package {package} is not installed. Run: pip install {name}",
            name=error.name,
            path=error.path,
        ) from error
