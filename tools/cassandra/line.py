"""The line to a node, cut.

A route that leads nowhere takes the place of the node's address: what is sent to it or by it is
lost, and sent again by TCP once the route is gone. Loopback alone is changed; only root may.
"""

import subprocess
from collections.abc import Sequence

from tools.cassandra.jars import CassandraError


class Line:
    """The network of one node on loopback: whole, or cut."""

    def __init__(self, host: str) -> None:
        """Take the node's address; changes nothing."""
        self._host = host
        self._is_cut = False

    def cut(self) -> None:
        """Let nothing through, in either direction; nothing happens where it is cut already.

        Raises CassandraError: routes may not be changed here.
        """
        if not self._is_cut:
            self._route("add")
            self._is_cut = True

    def mend(self) -> None:
        """Let everything through again."""
        if self._is_cut:
            self._route("del")
            self._is_cut = False

    def turn(self) -> None:
        """Cut it where it is whole, mend it where it is cut."""
        if self._is_cut:
            self.mend()
        else:
            self.cut()

    def _route(self, change: str) -> None:
        route: Sequence[str] = ("blackhole", f"{self._host}/32", "table", "local")
        try:
            subprocess.run(
                ["ip", "route", change, *route],  # noqa: S607  (wherever the system has it)
                check=True,
                capture_output=True,
                text=True,
            )
        except FileNotFoundError as error:
            raise CassandraError("Lines are cut with `ip`, which is absent (iproute2).") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip()
            raise CassandraError(
                f"The line to {self._host} was not changed ({said}): only root may change routes."
            ) from error
