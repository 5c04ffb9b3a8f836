"""What an application lets wait, and go on."""

from typing import Any, Protocol

from dueline import pausing
from dueline.errors import BadInput
from dueline.queue import Queues


class Host(Protocol):
    """What this needs of the application."""

    @property
    def queues(self) -> Queues:
        """The engine; connects at the first use."""
        ...


class Named(Protocol):
    """A task."""

    @property
    def name(self) -> str:
        """The name under which its jobs are stored."""
        ...


class Steering:
    """Pauses of queues, and of tenants and tasks in them."""

    def __init__(self, host: Host) -> None:
        """Take the application; opens nothing."""
        self._host = host

    def pause(
        self, queue: str, *, tenant: str | None = None, task: Named | str | None = None
    ) -> None:
        """Let no job of a queue be claimed, by any worker; or none of a tenant, or of a task.

        Idle workers are told at once, busy ones look four times a second; all know it within
        5 s. Running jobs go on, and so does what a worker has claimed.

        Args: task: a task, or its name.
        """
        pausing.pause(self._host.queues, queue, **_chosen(tenant, task))

    def resume(
        self, queue: str, *, tenant: str | None = None, task: Named | str | None = None
    ) -> None:
        """End a pause: that of the queue, or that of a tenant or of a task."""
        pausing.resume(self._host.queues, queue, **_chosen(tenant, task))


def _chosen(tenant: str | None, task: Named | str | None) -> dict[str, Any]:
    if tenant is not None and task is not None:
        raise BadInput("A pause is of a tenant or of a task.", hint="Pause one after the other.")
    name = task if isinstance(task, str | None) else task.name
    return {
        "tenants": () if tenant is None else (tenant,),
        "tasks": () if name is None else (name,),
    }
