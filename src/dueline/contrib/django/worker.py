"""The applications of the backends in TASKS, by alias, for processes that are no Django yet.

For example `dueline worker dueline.contrib.django.worker:default`.
"""

import django
from django.apps import apps

from dueline.contrib.django.application import DjangoApplication
from dueline.contrib.django.contract import InvalidTaskBackend, task_backends

if not apps.ready:
    django.setup()


def __getattr__(alias: str) -> DjangoApplication:
    """Return the application of a backend."""
    try:
        app: DjangoApplication = task_backends[alias].app
    except InvalidTaskBackend as error:
        raise AttributeError(str(error)) from error
    return app
