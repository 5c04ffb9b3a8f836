"""Connections to a server, and calls of its functions."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import redis
from redis.crc import key_slot
from redis.exceptions import MovedError, ReadOnlyError, ResponseError

from dueline.core.clock import SECOND_US, Clock
from dueline.core.durations import lease_timeout_us
from dueline.core.errors import ConfigError, DuelineError, SchemaMismatch, StoreUnavailable, Unknown
from dueline.stores.redis import durability
from dueline.stores.redis.address import TIMEOUT_US, Address
from dueline.stores.redis.errors import MISSING, UNKNOWN_RUN, translated
from dueline.stores.redis.library import SCHEMA_VERSION, library
from dueline.stores.redis.links import LOST, Link, Nodes, ask, close, facts_in, pairs

RESOLVE_US: Final = 5 * SECOND_US
"""Maximum time in which the outcome of a lost call is read, in microseconds."""

MOVES_MAX: Final = 5
"""Maximum number of nodes of a cluster that name another one as the primary of a slot."""

_IDENTITY: Final = object()
"""In a command: the identity of the store, then the process of the server, once they are known."""


class _LostError(Exception):
    """A connection was lost during a call."""

    def __init__(self, link: Link, error: Exception) -> None:
        super().__init__(str(error))
        self.link = link
        self.error = error


class Connections:
    """The calls of one process to one store, whose keys are in one slot.

    Args:
      address: The address of the store.
      nodes: Its servers.

    Attributes:
      address: The address of the store.
    """

    def __init__(self, address: Address, nodes: Nodes, clock: Clock) -> None:
        self.address = address
        self._nodes = nodes
        self._clock = clock
        self._identity: bytes | None = None
        self._about = f"{{{address.prefix}}}:about"
        self._slot = key_slot(self._about.encode())
        self._library, self._text = library()

    @property
    def timeout_s(self) -> float:
        """Time limit of a call, in seconds."""
        return self._nodes.timeout_s

    def close(self) -> None:
        """Close the idle connections."""
        self._nodes.close()

    def follow_lease(self, lease_us: int) -> None:
        """Give up calls after a third of a lease, unless the address has a time limit."""
        if self.address.timeout_us is None:
            self._nodes.follow_lease(lease_timeout_us(lease_us, TIMEOUT_US) / SECOND_US)

    def command(self, *arguments: Any, confirms: bool = False) -> Any:  # noqa: ANN401
        """Run a command that may be repeated; return its answer.

        Args:
          arguments: The command.
          confirms: Whether it writes, so that replicas confirm it.

        Raises:
          StoreUnavailable: The server does not answer.
          ConfigError: The server refuses it.
        """
        for attempt in (1, 2):
            try:
                return self._call(arguments, confirms=confirms)
            except _LostError as lost:
                self._nodes.forget()  # other connections may be lost as well
                if attempt == 2:  # noqa: PLR2004  (the second connection was new)
                    raise translated(lost.error, self.address) from lost.error
        raise AssertionError("unreachable")

    def read(self, function: str, *arguments: bytes) -> Any:  # noqa: ANN401
        """Call a function that may be repeated; return its answer."""
        return self.command(*self._function(function), _IDENTITY, *arguments)

    def keep(self, function: str, *arguments: bytes) -> Any:  # noqa: ANN401
        """Call a function that writes and may be repeated; return its answer."""
        return self.command(*self._function(function), _IDENTITY, *arguments, confirms=True)

    def claim(self, function: str, *arguments: bytes) -> Any:  # noqa: ANN401
        """Call a function once; return its answer.

        Raises:
          StoreUnavailable: Nothing was written.
          Unknown: The answer was lost.
        """
        try:
            command = (*self._function(function), _IDENTITY, b"", *arguments)
            return self._call(command, confirms=True)
        except _LostError as lost:
            self._nodes.forget()
            raise self._unknown() from lost.error

    def write(self, function: str, arguments: Sequence[bytes]) -> bytes:
        """Call a function that writes; return its outcome, also if the answer was lost.

        Raises:
          StoreUnavailable: Nothing was written.
          Unknown: The server did not say in time what became of the call.
        """
        for attempt in (1, 2):
            mark = secrets.token_bytes(12)
            try:
                command = (*self._function(function), _IDENTITY, mark, *arguments)
                outcome: bytes | None = self._call(command, confirms=True)
                assert outcome is not None
            except _LostError as lost:
                outcome = self._outcome(lost.link, mark)
                if outcome is not None:
                    return outcome
                if attempt == 2 or isinstance(lost.error, redis.TimeoutError):  # noqa: PLR2004
                    raise StoreUnavailable(
                        f"{self.address} did not answer in time; nothing was written.",
                        hint="Check the server's load and the network.",
                    ) from lost.error
            else:
                return outcome
        raise AssertionError("unreachable")

    def settings(self) -> Mapping[str, str]:
        """Return the settings that decide what the server may lose, as far as it shows them."""
        try:
            return pairs(self.command("CONFIG", "GET", *durability.SETTINGS))
        except ConfigError:
            return durability.settings_in(self.info("memory"), self.info("persistence"))

    def info(self, section: str) -> Mapping[str, str]:
        """Return a section of the server's facts."""
        return facts_in(self.command("INFO", section))

    def cluster(self) -> str:
        """Return the state of the cluster, and where the store is in it; no text on a server."""
        if not self.address.nodes:
            return ""
        try:
            facts = facts_in(self.command("CLUSTER", "INFO"))
        except ConfigError:
            facts = {}
        state, size = facts.get("cluster_state", "state unknown"), facts.get("cluster_size", "?")
        return (
            f"{state}, {size} primaries; this store is in slot {self._slot}, on"
            f" {self._nodes.of(self._slot)}"
        )

    def subscribe(self, channel: bytes) -> Any:  # noqa: ANN401
        """Return a connection of the driver that listens to a channel, without a time limit."""
        driver = self._nodes.of(self._slot).connect().driver
        driver.send_command("SUBSCRIBE", channel)
        driver.read_response()
        return driver

    def channel(self) -> bytes:
        """Return the channel of wake-ups."""
        return f"{{{self.address.prefix}}}:wakeups".encode()

    # Connections

    def _function(self, name: str) -> tuple[str, str, int, str]:
        return ("FCALL", f"{self._library}_{name}", 1, self._about)

    def _call(self, command: Sequence[Any], *, confirms: bool = False) -> Any:  # noqa: ANN401
        """Run a command on the primary.

        Raises:
          _LostError: The connection was lost; the command may have been run, or may be later.
        """
        for _ in range(MOVES_MAX):
            link = self._take()
            try:
                return self._run(link, command, confirms=confirms)
            except MovedError as error:  # nothing was run
                self._nodes.moved(self._slot, (error.host, error.port))
            except LOST as error:
                raise _LostError(link, error) from error
        raise StoreUnavailable(
            f"The nodes of {self.address} do not agree on the primary of a slot.",
            hint="See CLUSTER INFO on each of them.",
        )

    def _run(self, link: Link, command: Sequence[Any], *, confirms: bool = False) -> Any:  # noqa: ANN401
        """Run a command; the connection is given back, or closed if it is lost."""
        try:
            answer = self._ask_greeted(link, command)
            if confirms and self.address.wait:
                self._wait(link)
        except ResponseError as error:
            link.give_back()
            if isinstance(error, ReadOnlyError):  # a replica now: connections to it are of no use
                self.close()
            if isinstance(error, MovedError):
                raise
            raise translated(error, self.address) from error
        except BaseException:
            close(link)
            raise
        link.give_back()
        return answer

    def _wait(self, link: Link) -> None:
        """Wait until replicas have what this connection wrote.

        Raises:
          Unknown: They do not confirm it in time.
        """
        wait, limit_ms = self.address.wait, int(self.timeout_s * 500)
        try:
            confirmed = ask(link.driver, ("WAIT", wait, limit_ms))
        except ResponseError as error:  # the server is a replica now
            raise self._unknown() from error
        if confirmed < wait:
            raise Unknown(
                f"{confirmed} replicas of {self.address} have confirmed a write, wait={wait}.",
                hint="Check its replicas. Then repeat the call with the same ids.",
            )

    def _take(self) -> Link:
        try:
            return self._nodes.of(self._slot).take()
        except StoreUnavailable:
            self._nodes.forget()  # another node may be the primary by the next call
            raise

    def _greet(self, driver: Any, run: str) -> None:  # noqa: ANN401
        """Check the store's identity and version; create what is missing."""
        proposed = secrets.token_hex(16)
        known, is_cluster = self._identity or b"", int(bool(self.address.nodes))
        command = (
            *self._function("hello"), proposed, run, known, self.address.wait, is_cluster
        )  # fmt: skip
        identity, schema = self._ask_loaded(driver, command)
        if schema.decode() != SCHEMA_VERSION:
            raise SchemaMismatch(
                f"The keys of {self.address} have schema {schema.decode()}; this version uses"
                f" {SCHEMA_VERSION}.",
                hint="Use the version of dueline that wrote them, or another prefix=.",
            )
        self._identity = identity

    def _ask_greeted(self, link: Link, command: Sequence[Any]) -> Any:  # noqa: ANN401
        """Run a command; greet the server first if another was the primary since the last time."""
        if self._identity is None:
            self._greet(link.driver, link.run)
        for is_greeted in (False, True):
            known = [
                (self._identity or b"") + link.run.encode() if part is _IDENTITY else part
                for part in command
            ]
            try:
                return self._ask_loaded(link.driver, known)
            except ResponseError as error:
                if is_greeted or not str(error).startswith(UNKNOWN_RUN):
                    raise
                self._greet(link.driver, link.run)
        raise AssertionError("unreachable")

    def _ask_loaded(self, driver: Any, command: Sequence[Any]) -> Any:  # noqa: ANN401
        """Run a command; load the functions first if the server does not have them."""
        try:
            return ask(driver, command)
        except ResponseError as error:
            if not str(error).startswith(MISSING):  # else nothing was run
                raise
        self._load(driver)
        return ask(driver, command)

    def _load(self, driver: Any) -> None:  # noqa: ANN401
        try:
            ask(driver, ("FUNCTION", "LOAD", self._text))
        except ResponseError as error:
            if "already exists" not in str(error):
                raise translated(error, self.address) from error

    def _outcome(self, lost: Link, mark: bytes) -> bytes | None:
        """Return the outcome of a lost call; None if it was not run and never will be.

        Raises:
          Unknown: The server does not say.
        """
        until_us = self._clock.monotonic_us() + RESOLVE_US
        while self._clock.monotonic_us() < until_us:
            self._nodes.forget()  # other connections may be lost as well
            try:
                link = self._take()
                if link.run == lost.run:  # it may still have the call in its buffers
                    self._run(link, ("CLIENT", "KILL", "ID", lost.client))
                    link = self._take()
                command = (*self._function("outcome"), _IDENTITY, mark)
                outcome: bytes | None = self._run(link, command, confirms=True)
            except (*LOST, MovedError, DuelineError):
                self._clock.sleep(0.05)
            else:
                return outcome
        raise self._unknown()

    def _unknown(self) -> Unknown:
        return Unknown(
            f"{self.address} did not say what became of a call.",
            hint="Repeat the call with the same ids.",
        )
