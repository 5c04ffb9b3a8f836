"""The module `celery.utils`, whose names say what to write instead."""

from typing import NoReturn

from dueline.contrib.celery.words import UTILS, refuse_name


def __getattr__(name: str) -> NoReturn:
    """Name what to write instead of a name of Celery, or of its module `utils.log`."""
    refuse_name("log" if name == "__path__" else name, UTILS, __name__)
