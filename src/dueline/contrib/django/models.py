"""The model of the admin page; it has no table."""

from django.db import models


class Job(models.Model):  # noqa: DJ008  (it has no rows)
    """A job of a backend in TASKS: for the admin page and its permission `dueline.view_job`."""

    class Meta:
        """Django creates no table for it, and only the permission to view it."""

        managed = False
        app_label = "dueline"
        default_permissions = ("view",)
