"""The signals of Celery, each of which says which hook of dueline does the same."""

from dueline.contrib.celery.words import SIGNALS, names_elsewhere

__getattr__ = names_elsewhere(SIGNALS, __name__)
