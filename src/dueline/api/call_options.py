"""The options of a call, in one table: what callers write, how it is read, and where it applies.

Faces derive from OPTIONS. Three list names and types again, where people and editors read them:
`Using.using`, `NewJob` of the HTTP API, and the options of `dueline enqueue` and `schedules add`.
`tests/unit/api/test_option_table.py` compares them with the table.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from dueline.api.connection import Connection
from dueline.api.task_declaration import check_retry, limits_us, read_unique
from dueline.core.call_options import CARRIED, CallTerms, Carried, Unique
from dueline.core.clock import SECOND_US, asked_instant_us, asked_span_us, duration_us
from dueline.core.constraints import check_value
from dueline.core.errors import BadInput
from dueline.core.queue_settings import KeepUs
from dueline.jobs.transaction import Transaction
from dueline.tasks.batch_handler import BatchHandler
from dueline.tasks.handler import Handler

Shape = Enum("Shape", "TEXT NUMBER DURATION INSTANT END WORDS PAIRS OWN")
"""What a value is, for faces that read text or columns. END: an instant or a duration. WORDS and
PAIRS: strings, and strings by name. OWN: of a class of its own."""


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
    limits: tuple[str, ...] = ()
    wait_us: int = 0
    deadline_us: int | None = None
    due_within_us: int | None = None


class Target(NamedTuple):
    """What options are given to. given: all options of this call of `using`, by name."""

    host: Connection
    handler: Handler
    options: Options
    given: Mapping[str, Any]


Reader = Callable[[Any, Target], Mapping[str, object]]
"""Checks a value and returns the fields of `Options` or `CallTerms` that it sets."""


class Option(NamedTuple):
    """One option of a call. name: of the argument of `using`, and the member of a job in HTTP.

    word, schedule_word: in `dueline enqueue` and `schedules add`; empty: it is not there. http:
    whether HTTP has it. column: of the rows that Spark enqueues. is_set: whether a call has it in
    a way that steps of workflows lack (step=False), or schedules: these have `instead`.
    """

    name: str
    shape: Shape
    read: Reader
    word: str = ""
    schedule_word: str = ""
    http: bool = True
    column: str = ""
    is_set: Callable[[Options], bool] = lambda _: False
    step: bool = True
    instead: str = ""


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


def _carried(name: str, shape: Shape, word: str, schedule_word: str = "") -> Option:
    """Return an option that the job carries as it is."""
    read = CARRIED[name].read
    return Option(name, shape, lambda value, _: {name: read(value)}, word, schedule_word,
                  column=name)  # fmt: skip


# The table

_BY_SCHEDULE: Final = "Leave it out: the schedule sets the time."

OPTIONS: Final = (
    Option("due", Shape.INSTANT, _instant("due", "due_us", after_us=None), "due", column="due",
           is_set=lambda call: call.due_us is not None, instead=_BY_SCHEDULE),
    Option("after", Shape.DURATION, _span("after", "after_us", due_us=None), "after",
           is_set=lambda call: call.after_us is not None, instead=_BY_SCHEDULE),
    Option("priority", Shape.NUMBER,
           lambda value, _: {"priority": value, "deadline_us": None, "due_within_us": None},
           "priority", "priority", column="priority"),
    Option("queue", Shape.TEXT, _plain("queue"), "queue", "queue", column="queue"),
    Option("tenant", Shape.TEXT, _plain("tenant"), "tenant", "tenant", column="tenant"),
    Option("tx", Shape.OWN,
           lambda tx, to: {"tx": to.host.join(tx, to.given["queue"] or to.options.queue)},
           http=False, is_set=lambda call: call.tx is not None, step=False,
           instead="Leave it out: a schedule stores its jobs by itself."),
    Option("expires", Shape.END, _end("expires", "expires_us", "expires_after_us"), "expires",
           column="expires", is_set=lambda call: call.expires_us is not None,
           instead="Use `expires` with a duration."),
    Option("unique", Shape.OWN, lambda value, to: {"unique": read_unique(value, to.handler)},
           "unique", column="unique_key", is_set=lambda call: call.unique is not None, step=False,
           instead="Use `overlap` of the schedule, or a task without a unique key."),
    Option("window", Shape.DURATION, _span("window", "window_us"), "window", "jitter",
           column="jitter", is_set=lambda call: call.window_us > 0, step=False),
    _carried("tags", Shape.WORDS, "tag"),
    Option("limits", Shape.WORDS, lambda value, to: {"limits": to.handler.read_limits(value)}),
    Option("wait", Shape.DURATION, _span("wait", "wait_us"), http=False),
    Option("deadline", Shape.END, _end("deadline", "deadline_us", "due_within_us"), "deadline",
           is_set=lambda call: (call.deadline_us, call.due_within_us) != (None, None),
           instead=_BY_SCHEDULE),
    Option("retry", Shape.OWN, _retry),
    Option("timeout", Shape.DURATION, lambda value, _: {"timeout_us": duration_us(value)}),
    Option("kill_after", Shape.DURATION, lambda value, _: {"kill_after_us": duration_us(value)},
           http=False),
    Option("keep", Shape.DURATION, _keep, step=False,
           is_set=lambda call: call.terms is not None and call.terms.keep_us is not None),
    _carried("headers", Shape.PAIRS, "header"),
    _carried("labels", Shape.WORDS, "label", "label"),
)  # fmt: skip
"""All options of a call, which `using` and bulk calls have."""

NAMES: Final = tuple(option.name for option in OPTIONS)
_READERS: Final = tuple((option.name, option.read) for option in OPTIONS)
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
    for name, read in _READERS:
        value = given[name]
        if value is not None:
            changes |= read(value, target)
    own = {name: changes.pop(name) for name in CallTerms._fields if name in changes}
    if own:
        changes["terms"] = terms = (options.terms or CallTerms())._replace(**own)
        _check_time_limits(terms, target)
    return options.changed(**changes)


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
    if any(option.is_set(options) for option in others):
        *names, last = [f"`{option.name}`" for option in others]
        raise BadInput(
            f"A step of a workflow does not support {', '.join(names)} and {last}.",
            hint="Use app.start(..., tx=tx) to store a whole workflow in a transaction.",
        )


def check_recurring(options: Options, task: str) -> None:
    """Raise BadInput for the first option that a schedule cannot repeat."""
    for option in OPTIONS:
        if option.instead and option.is_set(options):
            raise BadInput(
                f"A schedule of {task} cannot have the option `{option.name}`.",
                hint=option.instead,
            )
