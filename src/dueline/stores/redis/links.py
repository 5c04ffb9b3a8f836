"""Open connections: to one server, or to the nodes of a cluster."""

import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

from dueline.core.clock import SECOND_US, Clock
from dueline.core.errors import ConfigError, StoreUnavailable
from dueline.stores.redis import durability
from dueline.stores.redis.address import CONNECT_TIMEOUT_S, TIMEOUT_US, Address
from dueline.stores.redis.errors import translated
from dueline.stores.redis.sentinels import primary_of

IDLE_MAX: Final = 8
"""Maximum number of idle connections to a server that a process keeps."""

RESTED_US: Final = 10_000
"""Time after which an idle connection is checked before its use, in microseconds."""

VERSION_MIN: Final = (7, 0)

LOST: Final = (redis.ConnectionError, redis.TimeoutError, OSError)
"""Errors after which a connection is not used again."""

Place = tuple[str, int]
"""Host and port of a server."""

_inherited: list[object] = []
"""Connections of a parent process: never used, and never closed, in a forked child."""


class Link(NamedTuple):
    """An open connection.

    Attributes:
      driver: The driver's connection.
      run: Id of the server's process.
      client: The connection's number at the server.
      home: The connections to the same server.
      used_us: Monotonic time of its last use.
    """

    driver: Any
    run: str
    client: int
    home: "Links"
    used_us: int

    def give_back(self) -> None:
        """Keep it for the next call."""
        self.home.keep(self)


class Links:
    """The connections of one process to one server; each thread uses one at a time.

    Args:
      address: The address of the store.
      clock: The machine's clock.
      place: The server; None for that of the address, which sentinels may name.

    Attributes:
      timeout_s: Time limit of a call, in seconds.
    """

    def __init__(self, address: Address, clock: Clock, place: Place | None = None) -> None:
        self.timeout_s = (address.timeout_us or TIMEOUT_US) / SECOND_US
        self._address = address
        self._clock = clock
        self._place = place
        self._idle: deque[Link] = deque()
        self._process = os.getpid()
        self._has_checked = False

    def __repr__(self) -> str:
        """Return the host and port of the server, if they are known."""
        return ":".join(map(str, self._place or ("", "")))

    def take(self) -> Link:
        """Return a connection that no other thread uses.

        Raises:
          StoreUnavailable: The server does not answer.
          ConfigError: The server would lose jobs.
        """
        self._forget_parent()
        with suppress(IndexError):
            while True:
                link = self._idle.pop()
                if self._clock.monotonic_us() - link.used_us < RESTED_US or _is_open(link):
                    return link
                close(link)
        link = self.connect()
        if not self._has_checked:
            try:
                durability.check(_settings(link.driver), self._address)
            except ConfigError:
                close(link)
                raise
            except LOST as error:
                close(link)
                raise translated(error, self._address) from error
            self._has_checked = True
        return link

    def keep(self, link: Link) -> None:
        """Keep a connection for the next call."""
        if len(self._idle) >= IDLE_MAX:
            close(link)
        else:
            self._idle.append(link._replace(used_us=self._clock.monotonic_us()))

    def close(self) -> None:
        """Close the idle connections."""
        self._forget_parent()
        with suppress(IndexError):
            while True:
                close(self._idle.pop())

    def connect(self) -> Link:
        """Open a connection."""
        address = self._address
        settings = {
            **address.settings,
            "socket_timeout": self.timeout_s,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "client_name": "dueline",
        }
        if self._place is not None:
            settings["host"], settings["port"] = self._place
        elif address.sentinels:
            settings["host"], settings["port"] = primary_of(address)
        if "path" in settings:
            kind: Any = redis.UnixDomainSocketConnection
            driver = kind(**settings)
        else:
            kind = redis.SSLConnection if address.is_tls else redis.Connection
            timeout_s = min(CONNECT_TIMEOUT_S, self.timeout_s)
            driver = kind(**settings, socket_connect_timeout=timeout_s, socket_keepalive=True)
        try:
            driver.connect()
            facts = facts_in(ask(driver, ("INFO", "server")))
            _check_server(facts, address)
            client = int(ask(driver, ("CLIENT", "ID")))
            return Link(driver, facts.get("run_id", ""), client, self, self._clock.monotonic_us())
        except (*LOST, ResponseError) as error:
            driver.disconnect()
            raise translated(error, address) from error

    def _forget_parent(self) -> None:
        if self._process != os.getpid():
            _inherited.extend(self._idle)
            self._process, self._idle = os.getpid(), deque()


class Nodes:
    """The servers of an address: one, or the nodes of a cluster.

    Args:
      address: The address of the store.
      clock: The machine's clock.

    Attributes:
      timeout_s: Time limit of a call, in seconds.
    """

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._links: dict[Place | None, Links] = {None: Links(address, clock)}
        self._of_slots: dict[int, Links] = {}
        self._nodes = address.nodes
        self.timeout_s = self._links[None].timeout_s

    def of(self, slot: int) -> Links:
        """Return the connections to the server that has a slot.

        Raises:
          StoreUnavailable: No node of the cluster says which one that is.
        """
        return self._of_slots.get(slot) or self._find(slot)

    def follow_lease(self, timeout_s: float) -> None:
        """Give up calls after a time, in seconds."""
        self.timeout_s = timeout_s
        for links in list(self._links.values()):
            links.timeout_s = timeout_s
            links.close()  # connections have the time limit of their start

    def moved(self, slot: int, place: Place) -> None:
        """Note that a node has named another one as the primary of a slot."""
        self._of_slots[slot] = self._at(place)

    def forget(self) -> None:
        """Close the idle connections, since they may be lost; ask again who has which slots."""
        self._of_slots.clear()
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        for links in list(self._links.values()):
            links.close()

    def _at(self, place: Place) -> Links:
        links = self._links.get(place)
        if links is None:
            links = Links(self._address, self._clock, place)
            links.timeout_s = self.timeout_s
            self._links[place] = links
        return links

    def _find(self, slot: int) -> Links:
        """Ask the nodes for the primary of a slot, first the one that has answered last."""
        if not self._nodes:
            self._of_slots[slot] = self._links[None]
            return self._links[None]
        failure: StoreUnavailable | None = None
        for place in self._nodes:
            links = self._at(place)
            try:
                spans = _spans(links, self._address)
            except StoreUnavailable as error:
                failure = error
                self._nodes = (*(other for other in self._nodes if other != place), place)
                continue
            places = [_place_in(span, place) for span in spans]
            self._nodes = tuple(dict.fromkeys((place, *places, *self._address.nodes)))
            for span in spans:
                if span[0] <= slot <= span[1]:
                    self._of_slots[slot] = primary = self._at(_place_in(span, place))
                    return primary
            failure = StoreUnavailable(
                f"No node of {self._address} has the slot {slot}.",
                hint="See CLUSTER INFO: each slot needs a primary.",
            )
        assert failure is not None
        raise failure


def ask(driver: Any, command: Sequence[Any]) -> Any:  # noqa: ANN401
    """Send a command; return its answer."""
    driver.send_command(*command)
    answer = driver.read_response(disable_decoding=True)
    if isinstance(answer, ResponseError):
        raise answer
    return answer


def close(link: Link) -> None:
    """Close a connection."""
    with suppress(Exception):
        link.driver.disconnect()


def pairs(flat: Sequence[bytes]) -> dict[str, str]:
    """Return a list of names and values as a dictionary."""
    texts = [text.decode() for text in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def facts_in(text: bytes) -> dict[str, str]:
    """Return the lines of INFO."""
    lines = (line.partition(":") for line in text.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def _spans(links: Links, address: Address) -> Sequence[Any]:
    """Return the ranges of slots and their primaries, as a node knows them."""
    link = links.take()
    try:
        spans: Sequence[Any] = ask(link.driver, ("CLUSTER", "SLOTS"))
    except (*LOST, ResponseError) as error:
        close(link)
        raise translated(error, address) from error
    link.give_back()
    return spans


def _place_in(span: Sequence[Any], asked: Place) -> Place:
    """Return the primary of a range of slots; it may name no host for the node that was asked."""
    host, port = span[2][0], int(span[2][1])
    return (host.decode() if host else asked[0]), port


def _settings(driver: Any) -> Mapping[str, str]:  # noqa: ANN401
    """Return settings of the server, as far as it shows them."""
    try:
        return pairs(ask(driver, ("CONFIG", "GET", *durability.SETTINGS)))
    except ResponseError:
        memory, files = (facts_in(ask(driver, ("INFO", it))) for it in ("memory", "persistence"))
        return durability.settings_in(memory, files)


def _check_server(facts: Mapping[str, str], address: Address) -> None:
    version = facts.get("redis_version", "0")
    if tuple(map(int, version.split(".")[:2])) < VERSION_MIN:
        raise ConfigError(
            f"{address} is Redis {version}; 7.0 is needed.",
            hint="Use Redis 7.0 or later, or Valkey.",
        )
    if facts.get("redis_mode") == "cluster" and not address.nodes:
        raise ConfigError(
            f"{address} is a node of a cluster.", hint="Use redis+cluster:// and name its nodes."
        )


def _is_open(link: Link) -> bool:
    try:
        return not link.driver.can_read(timeout=0)
    except LOST:
        return False
