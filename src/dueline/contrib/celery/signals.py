"""The signals of Celery, each of which says which hook of dueline does the same."""

from typing import NoReturn

from dueline.contrib.celery.words import SIGNALS, refuse_name


def __getattr__(name: str) -> NoReturn:
    """Name what to write instead of a signal."""
    refuse_name(name, SIGNALS, __name__)
