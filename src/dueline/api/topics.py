"""Topics: publish an event once; each subscriber gets it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from dueline.api.coordination import CoordinationMethods
from dueline.api.task import Using
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.jobs.transaction import Transaction
from dueline.streams import groups, topics
from dueline.streams.batch import BATCH, TTL_US
from dueline.streams.event import Event, Position
from dueline.streams.stream import Handle, Stream


class Subscription:
    """The topics of a task: `@app.task(on=Subscription("user.*", start="oldest"))`.

    Args:
        pattern: Name of a topic, or a pattern: `*` is one word, `**` at the end one or more.
        start: Where the task begins if it is new: "newest", with what is published from its
            registration on, or "oldest", with all events that the stream still has.

    Raises:
        BadInput: The pattern or `start` is invalid.
    """

    __slots__ = ("pattern", "start")

    def __init__(self, pattern: str, *, start: topics.Start = "newest") -> None:
        self.pattern = topics.check_pattern(pattern)
        self.start = topics.check_start(start)

    def __repr__(self) -> str:
        return f"<Subscription to {self.pattern}>"


def read_subscription(on: object, **keys: object) -> Subscription:
    """Return the topics of the argument `on`, a Subscription or a string.

    Args:
        on: The argument.
        **keys: The arguments that exclude it, by name.
    """
    for name, key in keys.items():
        if key is not None:
            raise BadInput(
                f"`on` and `{name}` exclude each other: each event is one job.",
                hint=f"Enqueue a job with `{name}` in the task.",
            )
    if isinstance(on, str):
        return Subscription(on)
    if not isinstance(on, Subscription):
        raise BadInput(
            f"`on=` must be a topic, a pattern or a Subscription (got {on!r:.80}).",
            hint='Use on="user.created".',
        )
    return on


class Topic:
    """A topic, or the topics that match a pattern; `app.topic(...)` returns it.

    Attributes:
        pattern: The name or pattern.
    """

    __slots__ = ("_host", "pattern")

    def __init__(self, host: "TopicMethods", pattern: str) -> None:
        self._host = host
        self.pattern = topics.check_pattern(pattern)

    def __repr__(self) -> str:
        return f"<Topic {self.pattern}>"

    def publish(
        self,
        value: Any,  # noqa: ANN401  (whatever JSON holds)
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        tx: object = None,
    ) -> Event:
        """Publish an event; see `app.publish`.

        Args:
            value: As in `app.publish`.
            key: As in `app.publish`.
            headers: As in `app.publish`.
            tx: As in `app.publish`.

        Raises:
            BadInput: This is a pattern of topics, or as in `app.publish`.
        """
        return self._host.publish(self.pattern, value, key=key, headers=headers, tx=tx)

    def consumer(
        self,
        group: str,
        *,
        batch: int = BATCH,
        lease: timedelta | float = TTL_US / SECOND_US,
        park_after: int | None = None,
        start: str | Position = "newest",
    ) -> Callable[[Handle], Handle]:
        """Register a function as the handler of a consumer group for these topics.

        `app.consume` runs it as `topics/<group>`; see `Stream.consumer`.

        Args:
            group: Name of the group.
            batch: Maximum number of events in a batch.
            lease: How long the shards of a process that died stay unavailable to others.
            park_after: Number of failures after which an event is parked.
            start: Where a new group begins: "newest", with what is published from its
                registration on, "oldest", or a position.

        Raises:
            BadInput: An option is out of range, or the group has a handler.
        """
        return self._host.topic_stream.consumer(
            group, batch=batch, lease=lease, park_after=park_after, start=start,
            topic=self.pattern,
        )  # fmt: skip

    def subscribers(self) -> dict[str, str]:
        """Return the registered subscribers that may get events of these topics.

        Returns:
            The pattern of each, by the name of its group; that of a task is `task <name>`.
        """
        known = groups.registered(self._host.engine.store, topics.STREAM)
        return {
            name: group.pattern
            for name, group in sorted(known.items())
            if group.pattern is not None and topics.may_meet(self.pattern, group.pattern)
        }


class TopicMethods(CoordinationMethods):
    """Methods of an application for topics."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self._subscriptions: dict[str, tuple[Using[..., Any], Subscription]] = {}
        self._registered_in: tuple[Engine, int] | None = None

    @property
    def topic_stream(self) -> Stream:
        """The stream that has the events of all topics."""
        return self.stream(topics.STREAM)

    def _delivering(self, *, at_once: bool) -> AbstractContextManager[None]:
        """Return what moves events of topics to tasks while a worker runs."""
        if not self._subscriptions:
            return nullcontext()
        from dueline.api.deliveries import delivering  # noqa: PLC0415  (few workers need it)

        return delivering(self, at_once=at_once)

    def topic(self, pattern: str) -> Topic:
        """Return a topic, or those that match a pattern: `app.topic("user.*")`.

        Args:
            pattern: Words with dots between them; `*` is one word, `**` at the end one or more.

        Raises:
            BadInput: The pattern is invalid.
        """
        return Topic(self, pattern)

    def publish(
        self,
        topic: str,
        value: Any,  # noqa: ANN401  (whatever JSON holds)
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        tx: object = None,
    ) -> Event:
        """Publish an event: `app.publish("user.created", {"id": 7})`.

        It is stored once, in the stream `topics`. Each subscriber whose pattern matches gets it
        once: tasks with `on=` as a job, consumer groups in a batch.

        Args:
            topic: Name of the topic.
            value: A value that JSON can represent, up to 256 KiB.
            key: Ordering key; a consumer group gets events of one key in the order of their
                publishing.
            headers: Small strings by name that travel with the event, as `ctx.headers`.
            tx: A transaction, as in `stream.append`; the event is published if it commits.

        Returns:
            The event.

        Raises:
            BadInput: The name is invalid, or the event cannot be encoded.
            AppendUnknown: The event may or may not be stored.
            StoreUnavailable: The event is not stored.
        """
        if not topics.is_topic(topics.check_pattern(topic)):
            raise BadInput(
                f"{topic} is a pattern of topics, and an event has one topic.",
                hint="Publish under a name without *.",
            )
        name = topics.check_topic(topic)
        self._register_subscribers(tx)
        return self.topic_stream.append(value, key=key, headers=headers, tx=tx, topic=name)

    def _register_subscribers(self, tx: object) -> None:
        """Register the subscribers that this process knows, so that they get what it publishes."""
        known: dict[str, tuple[str | None, str | Position]] = {
            group: (subscription.pattern, subscription.start)
            for group, (_, subscription) in self._subscriptions.items()
        }
        for group, registered in self.topic_stream.consumers.items():
            known[group] = (registered.terms.pattern, registered.start)
        engine = self.engine
        if not known or self._registered_in == (engine, len(known)):
            return
        if isinstance(tx, Transaction):
            engine = self.join(tx).queues_of(self).engine
        for group, (pattern, start) in known.items():
            if pattern is not None:
                groups.register(
                    engine.store, topics.STREAM, group, from_us=topics.begin_us(engine, start),
                    version=engine.ids.token(), pattern=pattern,
                )  # fmt: skip
        if engine is self.engine:  # in a transaction it may be rolled back
            self._registered_in = (engine, len(known))
