"""Methods of an application for streams, sequences and leases."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

from dueline.api.connection import Connection
from dueline.api.signals import SIGNALLED, passed_on
from dueline.api.stop_deadline import StopDeadline
from dueline.coordination.leases import BEATS_A_TTL, TTL_US_MIN, Leases
from dueline.coordination.sequence import BLOCK
from dueline.coordination.sequence import Sequence as Numbers
from dueline.core.clock import SECOND_US, Clock, asked_span_us, duration_us
from dueline.core.constraints import Count, check_value
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, DuelineError, LeaseLost, NotFound
from dueline.core.logging import enable_loggers, log
from dueline.core.process_identity import worker_name
from dueline.core.queue_settings import check_queue_name
from dueline.streams.consumer import Consumer
from dueline.streams.consumer_threads import ConsumerThreads
from dueline.streams.event import Position
from dueline.streams.stream import Registered, Stream, channel
from dueline.streams.trial import HandlerIsolation

DRAIN_S: Final = 25.0
LEASE_S: Final = 30.0
_LOOK_S: Final = 0.2


class HeldLease:
    """A lease that this process holds; `app.lease(...)` creates it.

    Attributes:
        epoch: Fencing token, larger than that of every earlier holder.
    """

    def __init__(self, leases: Leases, name: str, epoch: int) -> None:
        self.epoch = epoch
        self._leases = leases
        self._name = name

    @property
    def is_held(self) -> bool:
        """Whether this process certainly holds the lease."""
        return self._leases.epoch(self._name) == self.epoch

    def check(self) -> None:
        """Raise LeaseLost if another process may hold the lease.

        Raises:
            LeaseLost: The lease was not renewed in time.
        """
        if not self.is_held:
            raise LeaseLost(f"The lease {self._name} may be lost: it was not renewed in time.")


class CoordinationMethods(Connection):
    """Methods of an application for streams, sequences and leases."""

    def __init__(self, url: str | None = None, *, clock: Clock | None = None) -> None:
        super().__init__(url, clock=clock)
        self._streams: dict[str, Stream] = {}

    # Streams

    def stream(
        self,
        name: str,
        *,
        shards: int | None = None,
        keep: timedelta | float | None = None,
        keep_bytes: int | None = None,
    ) -> Stream:
        """Return a stream: an append-only log that consumer groups read.

        Args:
            name: Name of the stream.
            shards: Number of shards that ordering keys spread over; by default 1, or 8 on
                Cassandra, when the stream is created.
            keep: Minimum duration that events are kept, a timedelta or seconds; forever by
                default. Events that a registered group has not read are kept in any case.
            keep_bytes: Size of the events above which the oldest are removed, by minutes, if no
                registered group needs them; no limit by default.

        Raises:
            BadInput: The name or a value is out of range.
        """
        known = self._streams.get(name)
        if known is None or (shards, keep, keep_bytes) != (None, None, None):
            keep_us = None if keep is None else asked_span_us(keep, "keep")
            made = Stream(
                lambda: self.engine,
                name,
                owner=self,
                join=self.join,
                shards=shards,
                keep_us=keep_us,
                keep_bytes=keep_bytes,
            )
            if known is not None:
                made.consumers.update(known.consumers)
            self._streams[name] = made
        return self._streams[name]

    def _consumer_names(self) -> list[str]:
        """Return the registered handlers as `stream/group`."""
        return sorted(
            f"{name}/{group}"
            for name, stream in self._streams.items()
            for group in stream.consumers
        )

    @contextmanager
    def consuming(
        self,
        consumers: Sequence[str] | None = None,
        *,
        threads: int = 1,
        drain: timedelta | float = DRAIN_S,
    ) -> Iterator[list[Consumer]]:
        """Consume streams in threads of this process while the block runs.

        Args:
            consumers: Consumers as `stream/group`; by default all that are registered.
            threads: Number of shards that each consumer handles at the same time.
            drain: Maximum duration that handlers may continue at the end of the block.

        Yields:
            The running consumers.

        Raises:
            NotFound: A consumer is not registered, or none is.
            BadInput: `threads` is less than 1.
        """
        with _running(self._make_consumers(consumers, threads), drain) as running:
            yield running

    def consume(
        self,
        consumers: Sequence[str] | None = None,
        *,
        threads: int = 1,
        drain: timedelta | float = DRAIN_S,
    ) -> int:
        """Consume streams until SIGTERM or Ctrl-C.

        Args:
            consumers: Consumers as `stream/group`; by default all that are registered.
            threads: Number of shards that each consumer handles at the same time.
            drain: Maximum duration that handlers may continue after the signal.

        Returns:
            The number of the signal.

        Raises:
            NotFound: A consumer is not registered, or none is.
            BadInput: `threads` is less than 1.
        """
        from dueline.api.starting import started_when_available  # noqa: PLC0415  (of a worker)

        ended, deadline = threading.Event(), StopDeadline(duration_us(drain) / SECOND_US)

        def stop(count: int) -> None:
            deadline.stopped(SIGNALLED + received[0], hurry=count > 1)
            ended.set()

        with passed_on(stop) as received:
            made = started_when_available(
                self, lambda: self._make_consumers(consumers, threads), ended, name="consumer"
            )
            with _running(made or (), drain):
                ended.wait()
            deadline.over()
        return received[0]

    def _make_consumers(
        self, consumers: Sequence[str] | None, threads: int
    ) -> Sequence[tuple[Consumer, ConsumerThreads]]:
        names = self._consumer_names() if consumers is None else consumers
        isolation = HandlerIsolation(self.clock)
        enable_loggers()
        made = [
            self._make_consumer(*self._find_consumer(name), threads, isolation) for name in names
        ]
        if not made:
            raise NotFound("No consumer is registered.", hint='Use @stream.consumer("group").')
        return made

    def _find_consumer(self, name: str) -> tuple[Stream, Registered]:
        stream_name, _, group = name.partition("/")
        stream = self._streams.get(stream_name)
        if stream is None or group not in stream.consumers:
            raise NotFound(
                f"No consumer {name!r} is registered.",
                hint=f"Registered: {', '.join(self._consumer_names()) or 'none'}.",
            )
        return stream, stream.consumers[group]

    def _make_consumer(
        self, stream: Stream, registered: Registered, threads: int, isolation: HandlerIsolation
    ) -> tuple[Consumer, ConsumerThreads]:
        check_value(threads, Count, "threads")
        queues, (group, handle, terms, start) = self.queues, registered
        from_us = start.at_us if isinstance(start, Position) else 0
        consumer = Consumer(
            queues.engine,
            self.clock,
            worker_name(),
            stream=stream.name,
            settings=stream.look,
            group=group,
            terms=terms,
            owner=self,
            from_us=queues.engine.time.earliest_us() if start == "newest" else from_us,
            isolation=isolation,
        )
        loop = ConsumerThreads(
            consumer,
            handle,
            ttl_us=terms.ttl_us,
            threads=threads,
            wakeups=queues.engine.wakeups,
            channel=channel(stream.name),
            tidy=stream.expire,
        )
        return consumer, loop

    # Sequences and leases

    def sequence(self, name: str, *, block: int = BLOCK) -> Numbers:
        """Return a sequence of unique, increasing numbers.

        Args:
            name: Name of the sequence.
            block: Number of values reserved by one round trip. Values that this process does not
                use are skipped.

        Raises:
            BadInput: The name or `block` is invalid.
        """
        check_queue_name(name, "sequence")
        check_value(block, Count, "block")
        queues = self.queues
        return Numbers(queues.engine.store, name, ids=queues.engine.ids, block=block)

    @contextmanager
    def lease(
        self, name: str, *, ttl: timedelta | float = LEASE_S, wait: timedelta | float = 0
    ) -> Iterator[HeldLease]:
        """Hold a lease while the block runs; one process at a time holds it.

        A thread renews the lease. If renewal fails, `lease.check()` raises before another process
        can acquire the lease. Use `lease.epoch` as a fencing token in other systems.

        Args:
            name: Name of the lease.
            ttl: Duration after which the lease expires if this process dies; at least 2 s.
            wait: Maximum duration to wait for the current holder.

        Yields:
            The lease that is held.

        Raises:
            Conflict: Another process holds the lease.
            StoreMoved: The store has moved; its leases are granted there.
            BadInput: The name or a duration is out of range.
        """
        check_queue_name(name, "lease")
        ttl_us, wait_us = asked_span_us(ttl, "ttl"), asked_span_us(wait, "wait")
        if ttl_us < TTL_US_MIN:
            raise BadInput(f"`ttl` must be at least 2 s (got {ttl!r}).", hint="Use 2 s or more.")
        queues, clock = self.queues, self.clock
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
        while (epoch := leases.hold_or_take(name)) is None:
            if clock.monotonic_us() >= give_up_us:
                raise Conflict(
                    f"The lease {name} is held by {leases.look()[name].holder}.",
                    hint="Pass `wait` to wait for it.",
                )
            clock.sleep(_LOOK_S)
        _expect_here(queues.engine, leases, name)
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
            with suppress(DuelineError):  # then it expires by itself
                leases.release([name])


def _expect_here(engine: Engine, leases: Leases, name: str) -> None:
    """Release a lease that was granted after its store had moved: its epoch counts there (L1)."""
    try:
        engine.catalog.features.check()
        engine.catalog.features.expect_here()
    except DuelineError:
        leases.release([name])
        raise


@contextmanager
def _running(
    made: Sequence[tuple[Consumer, ConsumerThreads]], drain: timedelta | float
) -> Iterator[list[Consumer]]:
    """Run the threads of consumers while the block runs."""
    for _, loop in made:
        loop.start()
    try:
        yield [consumer for consumer, _ in made]
    finally:
        for _, loop in made:
            loop.stop()
        for _, loop in made:
            if not loop.join(duration_us(drain) / SECOND_US):
                log.warning(
                    "a handler still runs; its shards are released when their leases expire"
                )


def _renew(leases: Leases, ended: threading.Event, ttl_us: int) -> None:
    while not ended.wait(ttl_us / SECOND_US / BEATS_A_TTL):
        try:
            if leases.renew():
                return
        except DuelineError as error:
            log.warning("a lease could not be renewed: %s", error)
