"""The module `celery.utils`, whose names say what to write instead."""

from typing import NoReturn

from dueline.contrib.celery.words import UTILS, names_elsewhere

_elsewhere = names_elsewhere(UTILS, __name__)


def __getattr__(name: str) -> NoReturn:
    """Name what to write instead of a name of Celery, or of its module `utils.log`."""
    _elsewhere("log" if name == "__path__" else name)
