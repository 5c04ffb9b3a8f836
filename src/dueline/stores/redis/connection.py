"""Connections to a server, and calls of its functions."""

import os
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError, ResponseError
from redis.retry import Retry

from dueline.core.clock import SECOND_US, Clock
from dueline.core.durations import lease_timeout_us
from dueline.core.errors import ConfigError, DuelineError, SchemaMismatch, StoreUnavailable, Unknown
from dueline.stores.redis import durability
from dueline.stores.redis.address import CONNECT_TIMEOUT_S, TIMEOUT_US, Address
from dueline.stores.redis.errors import MISSING, UNKNOWN_RUN, translated
from dueline.stores.redis.library import SCHEMA_VERSION, library
from dueline.stores.redis.sentinels import primary_of

IDLE_MAX: Final = 8
"""Maximum number of idle connections that a process keeps."""

RESTED_US: Final = 10_000
"""Time after which an idle connection is checked before its use, in microseconds."""

RESOLVE_US: Final = 5 * SECOND_US
"""Maximum time in which the outcome of a lost call is read, in microseconds."""

VERSION_MIN: Final = (7, 0)

LOST: Final = (redis.ConnectionError, redis.TimeoutError, OSError)
"""Errors after which a connection is not used again."""

_IDENTITY: Final = object()
"""In a command: the identity of the store, then the process of the server, once they are known."""

_inherited: list[object] = []
"""Connections of a parent process: never used, and never closed, in a forked child."""


class Link(NamedTuple):
    """An open connection.

    Attributes:
      driver: The driver's connection.
      run: Id of the server's process.
      client: The connection's number at the server.
      used_us: Monotonic time of its last use.
    """

    driver: Any
    run: str
    client: int
    used_us: int


class Connections:
    """The connections of one process; each thread uses one at a time.

    Attributes:
      address: The server.
      timeout_s: Time limit of a call, in seconds.
    """

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self.timeout_s = (address.timeout_us or TIMEOUT_US) / SECOND_US
        self._clock = clock
        self._idle: deque[Link] = deque()
        self._process = os.getpid()
        self._identity: bytes | None = None
        self._has_checked = False
        self._about = f"{{{address.prefix}}}:about"
        self._library, self._text = library()

    def close(self) -> None:
        """Close the idle connections."""
        self._forget_parent()
        while self._idle:
            _close(self._idle.pop())

    def follow_lease(self, lease_us: int) -> None:
        """Give up calls after a third of a lease, unless the address has a time limit."""
        if self.address.timeout_us is None:
            self.timeout_s = lease_timeout_us(lease_us, TIMEOUT_US) / SECOND_US
            self.close()  # connections have the time limit of their start

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
            link = self._take()
            try:
                return self._run(link, arguments, confirms=confirms)
            except LOST as error:
                if attempt == 2:  # noqa: PLR2004  (the second connection was new)
                    raise translated(error, self.address) from error
                self.close()  # other connections may be lost as well
        raise AssertionError("unreachable")

    def read(self, function: str, *arguments: bytes) -> Any:  # noqa: ANN401
        """Call a function that may be repeated; return its answer."""
        return self.command(*self._call(function), _IDENTITY, *arguments)

    def keep(self, function: str, *arguments: bytes) -> Any:  # noqa: ANN401
        """Call a function that writes and may be repeated; return its answer."""
        return self.command(*self._call(function), _IDENTITY, *arguments, confirms=True)

    def claim(self, function: str, *arguments: bytes) -> Any:  # noqa: ANN401
        """Call a function once; return its answer.

        Raises:
          StoreUnavailable: Nothing was written.
          Unknown: The answer was lost.
        """
        link = self._take()
        try:
            command = (*self._call(function), _IDENTITY, b"", *arguments)
            return self._run(link, command, confirms=True)
        except LOST as error:
            raise self._unknown() from error

    def write(self, function: str, arguments: Sequence[bytes]) -> bytes:
        """Call a function that writes; return its outcome, also if the answer was lost.

        Raises:
          StoreUnavailable: Nothing was written.
          Unknown: The server did not say in time what became of the call.
        """
        for attempt in (1, 2):
            link = self._take()
            mark = secrets.token_bytes(12)
            try:
                command = (*self._call(function), _IDENTITY, mark, *arguments)
                outcome: bytes | None = self._run(link, command, confirms=True)
                assert outcome is not None
            except LOST as error:
                outcome = self._outcome(link, mark)
                if outcome is not None:
                    return outcome
                if attempt == 2 or isinstance(error, redis.TimeoutError):  # noqa: PLR2004
                    raise StoreUnavailable(
                        f"{self.address} did not answer in time; nothing was written.",
                        hint="Check the server's load and the network.",
                    ) from error
            else:
                return outcome
        raise AssertionError("unreachable")

    def settings(self) -> Mapping[str, str] | None:
        """Return the settings that decide what the server may lose; None if it hides them."""
        try:
            return _pairs(self.command("CONFIG", "GET", *durability.SETTINGS))
        except ConfigError:
            return None

    def info(self, section: str) -> Mapping[str, str]:
        """Return a section of the server's facts."""
        return _facts(self.command("INFO", section))

    def subscribe(self, channel: bytes) -> Any:  # noqa: ANN401
        """Return a connection of the driver that listens to a channel, without a time limit."""
        driver = self._connect()[0]
        driver.send_command("SUBSCRIBE", channel)
        driver.read_response()
        return driver

    def channel(self) -> bytes:
        """Return the channel of wake-ups."""
        return f"{{{self.address.prefix}}}:wakeups".encode()

    # Connections

    def _call(self, function: str) -> tuple[str, str, int, str]:
        return ("FCALL", f"{self._library}_{function}", 1, self._about)

    def _run(self, link: Link, command: Sequence[Any], *, confirms: bool = False) -> Any:  # noqa: ANN401
        """Run a command; the connection is given back, or closed if it is lost."""
        try:
            answer = self._ask_greeted(link, command)
            if confirms and self.address.wait:
                self._wait(link)
        except ResponseError as error:
            self._give_back(link)
            if isinstance(error, ReadOnlyError):  # a replica now: connections to it are of no use
                self.close()
            raise translated(error, self.address) from error
        except BaseException:
            _close(link)
            raise
        self._give_back(link)
        return answer

    def _wait(self, link: Link) -> None:
        """Wait until replicas have what this connection wrote.

        Raises:
          Unknown: They do not confirm it in time.
        """
        wait, limit_ms = self.address.wait, int(self.timeout_s * 500)
        try:
            confirmed = _ask(link.driver, ("WAIT", wait, limit_ms))
        except ResponseError as error:  # the server is a replica now
            raise self._unknown() from error
        if confirmed < wait:
            raise Unknown(
                f"{confirmed} replicas of {self.address} have confirmed a write, wait={wait}.",
                hint="Check its replicas. Then repeat the call with the same ids.",
            )

    def _take(self) -> Link:
        self._forget_parent()
        with suppress(IndexError):
            while True:
                link = self._idle.pop()
                if self._clock.monotonic_us() - link.used_us < RESTED_US or _is_open(link):
                    return link
                _close(link)
        return self._open()

    def _give_back(self, link: Link) -> None:
        if len(self._idle) >= IDLE_MAX:
            _close(link)
        else:
            self._idle.append(link._replace(used_us=self._clock.monotonic_us()))

    def _open(self) -> Link:
        driver, run, client = self._connect()
        try:
            if not self._has_checked:
                durability.check(_settings(driver) or {}, self.address)
                self._has_checked = True
            self._greet(driver, run)
        except ConfigError:
            driver.disconnect()
            raise
        except (*LOST, ResponseError) as error:
            driver.disconnect()
            raise translated(error, self.address) from error
        return Link(driver, run, client, self._clock.monotonic_us())

    def _connect(self) -> tuple[Any, str, int]:
        settings = {
            **self.address.settings,
            "socket_timeout": self.timeout_s,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "client_name": "dueline",
        }
        if self.address.sentinels:
            settings["host"], settings["port"] = primary_of(self.address)
        if "path" in settings:
            kind: Any = redis.UnixDomainSocketConnection
            driver = kind(**settings)
        else:
            kind = redis.SSLConnection if self.address.is_tls else redis.Connection
            timeout_s = min(CONNECT_TIMEOUT_S, self.timeout_s)
            driver = kind(**settings, socket_connect_timeout=timeout_s, socket_keepalive=True)
        try:
            driver.connect()
            facts = _facts(_ask(driver, ("INFO", "server")))
            self._check_version(facts)
            return driver, facts.get("run_id", ""), int(_ask(driver, ("CLIENT", "ID")))
        except (*LOST, ResponseError) as error:
            driver.disconnect()
            raise translated(error, self.address) from error

    def _check_version(self, facts: Mapping[str, str]) -> None:
        version = facts.get("redis_version", "0")
        if tuple(map(int, version.split(".")[:2])) < VERSION_MIN:
            raise ConfigError(
                f"{self.address} is Redis {version}; 7.0 is needed.",
                hint="Use Redis 7.0 or later, or Valkey.",
            )

    def _greet(self, driver: Any, run: str) -> None:  # noqa: ANN401
        """Check the store's identity and version; create what is missing."""
        proposed = secrets.token_hex(16)
        command = (*self._call("hello"), proposed, run, self._identity or b"", self.address.wait)
        identity, schema = self._ask_loaded(driver, command)
        if schema.decode() != SCHEMA_VERSION:
            driver.disconnect()
            raise SchemaMismatch(
                f"The keys of {self.address} have schema {schema.decode()}; this version uses"
                f" {SCHEMA_VERSION}.",
                hint="Use the version of dueline that wrote them, or another prefix=.",
            )
        self._identity = identity

    def _ask_greeted(self, link: Link, command: Sequence[Any]) -> Any:  # noqa: ANN401
        """Run a command; greet the server first if another was the primary since the last time."""
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
            return _ask(driver, command)
        except ResponseError as error:
            if not str(error).startswith(MISSING):  # else nothing was run
                raise
        self._load(driver)
        return _ask(driver, command)

    def _load(self, driver: Any) -> None:  # noqa: ANN401
        try:
            _ask(driver, ("FUNCTION", "LOAD", self._text))
        except ResponseError as error:
            if "already exists" not in str(error):
                raise translated(error, self.address) from error

    def _outcome(self, lost: Link, mark: bytes) -> bytes | None:
        """Return the outcome of a lost call; None if it was not run and never will be.

        Raises:
          Unknown: The server does not say.
        """
        until_us = self._clock.monotonic_us() + RESOLVE_US
        self.close()  # other connections may be lost as well
        while self._clock.monotonic_us() < until_us:
            try:
                link = self._take()
                if link.run == lost.run:  # it may still have the call in its buffers
                    self._run(link, ("CLIENT", "KILL", "ID", lost.client))
                    link = self._take()
                command = (*self._call("outcome"), _IDENTITY, mark)
                outcome: bytes | None = self._run(link, command, confirms=True)
            except (*LOST, DuelineError):
                self._clock.sleep(0.05)
            else:
                return outcome
        raise self._unknown()

    def _unknown(self) -> Unknown:
        return Unknown(
            f"{self.address} did not say what became of a call.",
            hint="Repeat the call with the same ids.",
        )

    def _forget_parent(self) -> None:
        if self._process != os.getpid():
            _inherited.extend(self._idle)
            self._process, self._idle = os.getpid(), deque()


def _ask(driver: Any, command: Sequence[Any]) -> Any:  # noqa: ANN401
    driver.send_command(*command)
    answer = driver.read_response(disable_decoding=True)
    if isinstance(answer, ResponseError):
        raise answer
    return answer


def _settings(driver: Any) -> Mapping[str, str] | None:  # noqa: ANN401
    """Return settings of the server; None if it hides them."""
    try:
        return _pairs(_ask(driver, ("CONFIG", "GET", *durability.SETTINGS)))
    except ResponseError:
        return None


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    texts = [text.decode() for text in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _facts(text: bytes) -> dict[str, str]:
    """Return the lines of INFO."""
    lines = (line.partition(":") for line in text.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def _is_open(link: Link) -> bool:
    try:
        return not link.driver.can_read(timeout=0)
    except LOST:
        return False


def _close(link: Link) -> None:
    with suppress(Exception):
        link.driver.disconnect()
