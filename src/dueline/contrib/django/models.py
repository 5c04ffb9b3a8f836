"""The model of the admin page; it has no table."""

from django.db import models


class Job(models.Model):  # noqa: DJ008  (it has no rows)
    """A job of a backend in TASKS: for the admin pages and their permissions.

    `dueline.view_job`; `dueline.change_job` to retry, cancel and run again; `dueline.delete_job`.
    """

    class Meta:
        """Django creates no table for it, and no permission to add one."""

        managed = False
        app_label = "dueline"
        default_permissions = ("view", "change", "delete")
