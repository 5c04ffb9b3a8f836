"""Reads the options of a call, which `core.option_table` lists."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from dueline.api.connection import Connection
from dueline.api.dependency import read_dependency
from dueline.api.task_declaration import check_retry, limits_us, read_order_key, read_unique
from dueline.core.call_options import CARRIED, CallTerms, Carried, OrderKey, Unique
from dueline.core.clock import SECOND_US, asked_instant_us, asked_span_us, duration_us
from dueline.core.constraints import check_value
from dueline.core.errors import BadInput
from dueline.core.option_table import NAMES, OPTIONS
from dueline.core.queue_settings import KeepUs
from dueline.jobs.transaction import Transaction
from dueline.tasks.batch_handler import BatchHandler
from dueline.tasks.handler import Handler


class Options(Carried, frozen=True, gc=True):
    """The options of a call, as they are read.

    due_us: absolute; after_us: from the call; neither: now. expires_us, expires_after_us: the
    same; neither: never. window_us: starts are spread over this duration.
    tx: the transaction that stores the job; None for its own. wait_us: for room in a quota.
    deadline_us, due_within_us: instead of a priority, absolute or from the call.
    """

    queue: str
    priority: int = 0
    tenant: str = ""
    due_us: int | None = None
    after_us: int | None = None
    tx: Transaction | None = None
    expires_us: int | None = None
    expires_after_us: int | None = None
    window_us: int = 0
    unique: Unique | None = None
    order_key: OrderKey | None = None
    limits: tuple[str, ...] = ()
    wait_us: int = 0
    deadline_us: int | None = None
    due_within_us: int | None = None

    def has_keys(self) -> bool:
        """Return whether calls have keys or limits, which may be made from their arguments."""
        return bool(self.unique or self.order_key or self.limits)

    def is_timed(self) -> bool:
        """Return whether its time, expiry or priority is computed for each call."""
        times = self.after_us, self.expires_after_us, self.deadline_us, self.due_within_us
        return times != (None, None, None, None)


class Target(NamedTuple):
    """What options are given to. given: all options of this call of `using`, by name."""

    host: Connection
    handler: Handler
    options: Options
    given: Mapping[str, Any]


Reader = Callable[[Any, Target], Mapping[str, object]]
"""Checks a value and returns the fields of `Options` or `CallTerms` that it sets."""


# Readers


def _plain(name: str) -> Reader:
    return lambda value, _: {name: value}


def _span(name: str, field: str, **others: None) -> Reader:
    return lambda value, _: {field: asked_span_us(value, name), **others}


def _instant(name: str, field: str, **others: None) -> Reader:
    return lambda value, _: {field: asked_instant_us(value, name), **others}


def _end(name: str, at: str, after: str) -> Reader:
    instant, span = _instant(name, at, **{after: None}), _span(name, after, **{at: None})
    return lambda value, target: (instant if isinstance(value, datetime) else span)(value, target)


def _retry(retry: Any, _: Target) -> Mapping[str, object]:  # noqa: ANN401  (checked here)
    check_retry(retry)
    return {"retry": retry.terms()}


def _keep(keep: object, _: Target) -> Mapping[str, object]:
    keep_us = asked_span_us(keep, "keep")
    check_value(keep_us, KeepUs, "keep_us")
    return {"keep_us": keep_us}


def _given(name: str) -> Reader:
    read = CARRIED[name].read
    return lambda value, _: {name: read(value)}


_READERS: Final[Mapping[str, Reader]] = {
    "due": _instant("due", "due_us", after_us=None),
    "after": _span("after", "after_us", due_us=None),
    "priority": lambda value, _: {"priority": value, "deadline_us": None, "due_within_us": None},
    "queue": _plain("queue"),
    "tenant": _plain("tenant"),
    "tx": lambda tx, to: {"tx": to.host.join(tx, to.given["queue"] or to.options.queue)},
    "expires": _end("expires", "expires_us", "expires_after_us"),
    "unique": lambda value, to: {"unique": read_unique(value, to.handler)},
    "window": _span("window", "window_us"),
    "limits": lambda value, to: {"limits": to.handler.read_limits(value)},
    "wait": _span("wait", "wait_us"),
    "deadline": _end("deadline", "deadline_us", "due_within_us"),
    "retry": _retry,
    "timeout": lambda value, _: {"timeout_us": duration_us(value)},
    "kill_after": lambda value, _: {"kill_after_us": duration_us(value)},
    "keep": _keep,
    "webhook": lambda value, to: {"webhook": to.host.read_webhook(value)},
    "depends_on": lambda value, _: {"awaits": read_dependency(value)},
    "order_key": lambda value, to: {"order_key": read_order_key(value, to.handler)},
    **{name: _given(name) for name in CARRIED},
}
_IN_ORDER: Final = tuple((name, _READERS[name]) for name in NAMES)

_IS_SET: Final[Mapping[str, Callable[[Options], bool]]] = {
    "due": lambda call: call.due_us is not None,
    "after": lambda call: call.after_us is not None,
    "tx": lambda call: call.tx is not None,
    "expires": lambda call: call.expires_us is not None,
    "unique": lambda call: call.unique is not None,
    "window": lambda call: call.window_us > 0,
    "deadline": lambda call: (call.deadline_us, call.due_within_us) != (None, None),
    "depends_on": lambda call: call.awaits is not None,
    "order_key": lambda call: call.order_key is not None,
    "webhook": lambda call: bool(call.webhook),
    "keep": lambda call: call.terms is not None and call.terms.keep_us is not None,
}
"""Whether a call has an option in a way that steps of workflows lack, or schedules."""

_EXCLUSIVE: Final = (("due", "after"), ("deadline", "priority"))


def with_options(
    options: Options, given: Mapping[str, Any], *, host: Connection, handler: Handler
) -> Options:
    """Return the options of a call, with all that `using` was given by name; None keeps one.

    Raises: BadInput: a value is out of range, or options exclude each other.
    """
    for first, second in _EXCLUSIVE:
        if given[first] is not None and given[second] is not None:
            raise BadInput(
                f"`{first}` and `{second}` exclude each other.", hint="Pass one of them."
            )
    target = Target(host, handler, options, given)
    changes: dict[str, Any] = {}
    for name, read in _IN_ORDER:
        value = given[name]
        if value is not None:
            changes |= read(value, target)
    own = {name: changes.pop(name) for name in CallTerms._fields if name in changes}
    if own:
        changes["terms"] = terms = (options.terms or CallTerms())._replace(**own)
        _check_time_limits(terms, target)
    options = options.changed(**changes)
    check_waits(options)
    return options


_BY_TIME: Final = ("earliest", "last")


def check_waits(options: Options) -> None:
    """Raise BadInput for options that a job cannot have that waits for others."""
    if options.awaits is None and options.order_key is None:
        return
    name = "depends_on" if options.order_key is None else "order_key"
    if options.window_us:
        raise BadInput(
            f"`window` and `{name}` exclude each other.",
            hint="Omit `window`: the job starts after the others.",
        )
    if options.unique is not None and options.unique.mode in _BY_TIME:
        raise BadInput(
            f"A unique key of the mode {options.unique.mode!r} compares due times, so it cannot be "
            f"used with `{name}`.",
            hint='Use the mode "reject" or "existing".',
        )
    if options.order_key is not None:
        _check_order(options)


def _check_order(options: Options) -> None:
    if options.awaits is not None:
        raise BadInput(
            "`order_key` and `depends_on` exclude each other: two jobs could wait for each other.",
            hint="Give the jobs one order key, or let the task enqueue what comes next.",
        )
    if options.unique is not None and options.unique.mode == "replace":
        raise BadInput(
            'A unique key of the mode "replace" would take the place of a job in its order.',
            hint='Use the mode "reject" or "existing".',
        )
    if options.durable is not None:
        raise BadInput(
            "A durable function cannot have an order key: it would hold the key while it waits.",
            hint="Enqueue a task with an order key in one of its steps.",
        )


def _check_time_limits(terms: CallTerms, target: Target) -> None:
    """Check the time limits that are given, and those with which the handler runs."""
    _, handler, _, given = target
    given_us = limits_us(given["timeout"], given["kill_after"])
    if isinstance(handler, BatchHandler) and given_us != (None, None):
        raise BadInput(
            f"A batch of {handler.name} has one time limit for all of its calls.",
            hint="Set `timeout` and `kill_after` at the task.",
        )
    own = (handler.timeout_us, handler.kill_after_us)
    limits = (
        us if us is not None else task
        for us, task in zip((terms.timeout_us, terms.kill_after_us), own, strict=True)
    )
    limits_us(*(None if us is None else us / SECOND_US for us in limits))


def check_step(options: Options) -> None:
    """Raise BadInput if an option does not apply to steps of workflows."""
    others = [option for option in OPTIONS if not option.step]
    if any(_IS_SET[option.name](options) for option in others):
        *names, last = [f"`{option.name}`" for option in others]
        raise BadInput(
            f"A step of a workflow does not support {', '.join(names)} and {last}.",
            hint="Use app.start(..., tx=tx) to store a whole workflow in a transaction.",
        )


_NOT_CALLED: Final = ("tx", "unique", "window", "depends_on", "order_key", "webhook")


def check_called(options: Options, task: str) -> None:
    """Raise BadInput for the first option that does not apply to calls of durable functions."""
    for name in _NOT_CALLED:
        if _IS_SET[name](options):
            raise BadInput(
                f"A durable function cannot call {task} with the option `{name}`.",
                hint="Each call is a job of its own, stored with the record of the call.",
            )


def check_mapped(options: Options, items: object, key: object) -> None:
    """Raise BadInput for what `map` cannot take."""
    for name, hint in (
        ("tx", "A batch is stored in many writes; call `map` after the transaction."),
        ("unique", "Use key= of `map`: each key is one job of the batch."),
        ("depends_on", "Call `map` in a job that depends on the others."),
        ("order_key", "Use `enqueue_many`, which stores the calls in their order."),
        ("webhook", "Enqueue a job with a webhook when `wait` of the batch returns."),
    ):
        if _IS_SET[name](options):
            raise BadInput(f"`map` does not take the option `{name}`.", hint=hint)
    if not isinstance(items, Iterable) or isinstance(items, str | bytes | Mapping):
        raise BadInput(
            f"The items of a batch must be an iterable (got {type(items).__name__}).",
            hint="Use a list or a generator.",
        )
    if key is not None and not callable(key):
        raise BadInput(
            f"`key` must be a function of an item (got {key!r:.80}).",
            hint='Use key=lambda item: item["id"].',
        )


def check_recurring(options: Options, task: str) -> None:
    """Raise BadInput for the first option that a schedule cannot repeat."""
    for option in OPTIONS:
        if option.instead and _IS_SET[option.name](options):
            raise BadInput(
                f"A schedule of {task} cannot have the option `{option.name}`.",
                hint=option.instead,
            )
