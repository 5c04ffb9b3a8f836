"""What an application lets wait, and go on."""

from typing import Protocol

from dueline import pausing
from dueline.queue import Queues


class Host(Protocol):
    """What this needs of the application."""

    @property
    def queues(self) -> Queues:
        """The engine; connects at the first use."""
        ...


class Steering:
    """Pauses of queues, or of tenants in them."""

    def __init__(self, host: Host) -> None:
        """Take the application; opens nothing."""
        self._host = host

    def pause(self, queue: str, *, tenant: str | None = None) -> None:
        """Let no job of a queue be claimed, or none of a tenant, by any worker.

        Idle workers are told at once, busy ones look four times a second; all know it within
        5 s. Running jobs go on, and so does what a worker has claimed.
        """
        pausing.pause(self._host.queues, queue, tenants=() if tenant is None else (tenant,))

    def resume(self, queue: str, *, tenant: str | None = None) -> None:
        """End a pause: that of the queue, or that of a tenant."""
        pausing.resume(self._host.queues, queue, tenants=() if tenant is None else (tenant,))
