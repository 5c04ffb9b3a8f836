"""Streams, leases and sequences of an application."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

from dueline.api.connection import Connection
from dueline.api.signals import passed_on
from dueline.coordination.leases import BEATS_A_TTL, TTL_US_MIN, Leases
from dueline.coordination.sequence import BLOCK
from dueline.coordination.sequence import Sequence as Numbers
from dueline.core.clock import SECOND_US, asked_span_us, duration_us
from dueline.core.errors import BadInput, Conflict, DuelineError, LeaseLost, NotFound
from dueline.core.logging import log
from dueline.core.process_identity import worker_name
from dueline.core.queue_settings import check_queue_name
from dueline.streams.consumer import Consumer
from dueline.streams.consumer_threads import Consuming
from dueline.streams.event import Position
from dueline.streams.stream import Registered, Stream, bell
from dueline.streams.trial import Quiet

DRAIN_S: Final = 25.0
LEASE_S: Final = 30.0
_LOOK_S: Final = 0.2


class HeldLease:
    """A lease that this process holds. epoch: larger than that of every holder before."""

    def __init__(self, leases: Leases, name: str, epoch: int) -> None:
        """Take what holds it."""
        self.epoch = epoch
        self._leases = leases
        self._name = name

    @property
    def is_held(self) -> bool:
        """Tell whether it is held beyond doubt."""
        return self._leases.epoch(self._name) == self.epoch

    def check(self) -> None:
        """Stop here if somebody else may hold the lease by now.

        Raises: LeaseLost: that may be.
        """
        if not self.is_held:
            raise LeaseLost(f"The lease {self._name} is in doubt: it could not be renewed in time.")


class Coordination:
    """What an application coordinates its processes with."""

    def __init__(self, host: Connection) -> None:
        """Take the application; opens nothing."""
        self._host = host
        self._streams: dict[str, Stream] = {}

    # Streams

    def stream(
        self, name: str, *, shards: int | None = None, keep: timedelta | float | None = None
    ) -> Stream:
        """Give a stream: an append-only log that any number of groups read by position.

        Args:
          shards: slices that ordering keys spread over; at the first use 1, or 8 on Cassandra.
          keep: how long events are kept at least, for ever by default; those that a registered
            group has not read stay anyway.

        Raises: BadInput: a name or value out of range.
        """
        known = self._streams.get(name)
        if known is None or shards is not None or keep is not None:
            keep_us = None if keep is None else asked_span_us(keep, "keep")
            made = Stream(
                lambda: self._host.engine, name, owner=self._host, shards=shards, keep_us=keep_us
            )
            if known is not None:
                made.consumers.update(known.consumers)
            self._streams[name] = made
        return self._streams[name]

    def consumers(self) -> list[str]:
        """List the registered handlers, as `stream/group`."""
        return sorted(
            f"{name}/{group}" for name, one in self._streams.items() for group in one.consumers
        )

    @contextmanager
    def consuming(
        self,
        consumers: Sequence[str] | None = None,
        *,
        threads: int = 1,
        drain: timedelta | float = DRAIN_S,
    ) -> Iterator[list[Consumer]]:
        """Consume in threads of this process for as long as the block lasts.

        Args:
          consumers: as `stream/group`; all that are registered by default.
          threads: how many shards of each are handled at once.
          drain: how long handlers may go on at the end of the block.
        """
        names = self.consumers() if consumers is None else consumers
        quiet = Quiet(self._host.clock)
        made = [self._at_work(*self._find(name), threads, quiet) for name in names]
        if not made:
            raise NotFound("No consumer is registered.", hint='Write @stream.consumer("group").')
        for _, loop in made:
            loop.start()
        try:
            yield [consumer for consumer, _ in made]
        finally:
            for _, loop in made:
                loop.stop()
            for _, loop in made:
                if not loop.join(duration_us(drain) / SECOND_US):
                    log.warning("a handler goes on; its shards are free when their leases lapse")

    def consume(
        self,
        consumers: Sequence[str] | None = None,
        *,
        threads: int = 1,
        drain: timedelta | float = DRAIN_S,
    ) -> int:
        """Consume until SIGTERM or Ctrl-C. Args: as `consuming`. Returns: the signal's number."""
        ended = threading.Event()
        with (
            passed_on(lambda _: ended.set()) as received,
            self.consuming(consumers, threads=threads, drain=drain),
        ):
            ended.wait()
        return received[0]

    def _find(self, name: str) -> tuple[Stream, Registered]:
        stream, _, group = name.partition("/")
        found = self._streams.get(stream)
        if found is None or group not in found.consumers:
            raise NotFound(
                f"No consumer {name!r} is registered.",
                hint=f"There is {', '.join(self.consumers()) or 'none'}.",
            )
        return found, found.consumers[group]

    def _at_work(
        self, stream: Stream, registered: Registered, threads: int, quiet: Quiet
    ) -> tuple[Consumer, Consuming]:
        if threads < 1:
            raise BadInput(f"threads={threads} handle nothing.")
        queues, (group, handle, terms, start) = self._host.queues, registered
        from_us = start.at_us if isinstance(start, Position) else 0
        consumer = Consumer(
            queues.engine,
            self._host.clock,
            worker_name(),
            stream=stream.name,
            settings=stream.look,
            group=group,
            terms=terms,
            owner=self._host,
            from_us=queues.engine.time.earliest_us() if start == "newest" else from_us,
            quiet=quiet,
        )
        loop = Consuming(
            consumer,
            handle,
            ttl_us=terms.ttl_us,
            threads=threads,
            waker=queues.engine.waker,
            bell=bell(stream.name),
            tidy=stream.expire,
        )
        return consumer, loop

    # Sequences and leases

    def sequence(self, name: str, *, block: int = BLOCK) -> Numbers:
        """Give a sequence: unique numbers that grow, without a round trip for each.

        Args: block: how many are reserved at once; those that are not used are left out.
        """
        check_queue_name(name)
        if type(block) is not int or block < 1:
            raise BadInput(f"block={block!r} is no number of numbers.")
        queues = self._host.queues
        return Numbers(queues.engine.store, name, ids=queues.engine.ids, block=block)

    @contextmanager
    def lease(
        self,
        name: str,
        *,
        ttl: timedelta | float = LEASE_S,
        wait: timedelta | float = 0,
    ) -> Iterator[HeldLease]:
        """Hold a lease for as long as the block lasts: one process at a time.

        A thread renews it. Where that fails it comes into doubt, and `lease.check()` raises
        before anybody else can have it; what is written elsewhere is fenced by `lease.epoch`.

        Args: ttl: how long others wait after this process died. wait: for the holder before.

        Raises: Conflict: somebody else holds it.
        """
        check_queue_name(name)
        ttl_us, wait_us = asked_span_us(ttl, "ttl"), asked_span_us(wait, "wait")
        if ttl_us < TTL_US_MIN:
            raise BadInput(f"ttl={ttl!r} is too short.", hint="Use 2 s or more.")
        queues, clock = self._host.queues, self._host.clock
        leases = Leases(
            queues.engine.store,
            f"leases/{name}",
            worker_name(),
            ttl_us=ttl_us,
            time=queues.engine.time,
            clock=clock,
            ids=queues.engine.ids,
        )
        give_up_us = clock.monotonic_us() + wait_us
        while (epoch := leases.stand(name)) is None:
            if clock.monotonic_us() >= give_up_us:
                raise Conflict(f"The lease {name} is held by {leases.look()[name].holder}.")
            clock.sleep(_LOOK_S)
        ended = threading.Event()
        beat = threading.Thread(
            target=_renew, args=(leases, ended, ttl_us), name="dueline-lease", daemon=True
        )
        beat.start()
        try:
            yield HeldLease(leases, name, epoch)
        finally:
            ended.set()
            beat.join()
            with suppress(DuelineError):  # then it lapses by itself
                leases.release([name])


def _renew(leases: Leases, ended: threading.Event, ttl_us: int) -> None:
    while not ended.wait(ttl_us / SECOND_US / BEATS_A_TTL):
        try:
            if leases.renew():
                return
        except DuelineError as error:
            log.warning("a lease could not be renewed: %s", error)
