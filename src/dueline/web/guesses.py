"""Wrong tokens: each address has few attempts, then one a second; they are logged.

An address whose tokens were wrong waits for its turn before a token is read, also if it sends many
at once. Other addresses are not slowed down, nor is a token that was right from the same address.
"""

import asyncio
import hashlib
import ipaddress
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, TypeVar

FREE: Final = 3
"""Number of wrong tokens of an address that are not slowed down."""

EVERY_S: Final = 1.0
"""Time between two later attempts of an address, in seconds."""

WAITING_MAX: Final = 5
"""Maximum number of attempts of an address that wait for their turn."""

FORGET_S: Final = 900.0
LOG_EVERY_S: Final = 10.0
PEERS_MAX: Final = 10_000
KNOWN_MAX: Final = 1_000

K = TypeVar("K")
V = TypeVar("V")

_log = logging.getLogger("dueline.web")


@dataclass(slots=True)
class _Peer:
    """Wrong tokens of an address: how many, how many are not logged yet, and times in seconds."""

    wrong: int = 0
    unlogged: int = 0
    last_s: float = 0
    turn_s: float = 0
    logged_s: float = -LOG_EVERY_S


class Guesses:
    """Slows down attempts with wrong tokens."""

    def __init__(self) -> None:
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    async def wait(self, host: str, token: str) -> bool:
        """Wait until an address may try a token; return False if too many of it wait."""
        name = _name_of(host)
        if (name, _digest(token)) in self._known:
            return True
        peer, now_s = self._peers.get(name), time.monotonic()
        if peer is None or peer.wrong < FREE or now_s - peer.last_s > FORGET_S:
            return True
        turn_s = max(now_s, peer.turn_s)
        if turn_s - now_s > WAITING_MAX * EVERY_S:
            return False
        peer.turn_s = turn_s + EVERY_S
        await asyncio.sleep(turn_s - now_s)
        return True

    def note(self, host: str, token: str, *, is_right: bool) -> None:
        """Note the result of an attempt."""
        name = _name_of(host)
        if is_right:
            _keep(self._known, (name, _digest(token)), None, KNOWN_MAX)
            return
        now_s = time.monotonic()
        peer = self._peers.get(name) or _Peer()
        if now_s - peer.last_s > FORGET_S:
            peer.wrong = 0
        peer.wrong += 1
        peer.unlogged += 1
        peer.last_s = now_s
        _keep(self._peers, name, peer, PEERS_MAX)
        if now_s - peer.logged_s >= LOG_EVERY_S:
            _log.warning("%d wrong tokens from %s (%d so far)", peer.unlogged, name, peer.wrong)
            peer.unlogged, peer.logged_s = 0, now_s


def _keep(values: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    values[key] = value
    values.move_to_end(key)
    while len(values) > most:
        values.popitem(last=False)


def _name_of(host: str) -> str:
    """Return the address that attempts are counted for: of IPv6 the network of a site."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:80]
    if address.version == 6:  # noqa: PLR2004
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
