"""Steps: calls of functions whose results are recorded."""

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_type_hints
from weakref import WeakKeyDictionary

from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput, JobTimeout
from dueline.core.retry import Retry
from dueline.core.user_code import Raised, describe
from dueline.durable.activation import Activation, Undo
from dueline.durable.driving import Part, Pause, UserCall
from dueline.durable.errors import StepFailed, StepLost
from dueline.durable.log import Entry, Head, note_of
from dueline.durable.log import shown as position

_kinds: WeakKeyDictionary[Callable[..., Any], Any] = WeakKeyDictionary()
"""Annotations of the results of functions: evaluating them takes longer than a small step."""

PAUSE_US_MAX: Final = 5 * SECOND_US
"""Longer waits between the attempts of a step are parked."""

_TRACEBACK_CHARACTERS_MAX: Final = 4096
_ERROR_CHARACTERS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class StepTerms:
    """How a step is called.

    retry: None: as its function is retried. raises: classes of errors that are raised again as
    they are. undo: compensation, called with the result. once: it is started once at most.
    """

    name: str
    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    retry: Retry | None = None
    timeout_us: int | None = None
    raises: tuple[type[Exception], ...] = ()
    undo: Callable[[Any], Any] | None = None
    undo_if_unknown: bool = False
    once: bool = False


def name_of(function: Callable[..., Any], name: str | None) -> str:
    """Return the name of a step.

    Raises: BadInput: a lambda or local function has none.
    """
    own = name or getattr(function, "__qualname__", None) or type(function).__name__
    if name is None and "<" in own:
        raise BadInput(
            f"The step {own} is a lambda or local function, so its name is not unique.",
            hint="Give the call a name=, or move the function to the top level of a module.",
        )
    return own


def kind_of(function: Callable[..., Any]) -> Any:  # noqa: ANN401  (any annotation)
    """Return the annotation of a function's result."""
    try:
        body = inspect.unwrap(function)
        kind = _kinds.get(body, _kinds)
        if kind is _kinds:
            kind = _kinds[body] = get_type_hints(body).get("return", Any)
    except (TypeError, NameError, AttributeError):
        return Any
    return kind


def step(run: Activation, key: str, terms: StepTerms) -> Generator[Part, Any, Any]:
    """Call a function unless its result is recorded; return or raise what the record holds."""
    try:
        entry = yield from run.replayed(key, "step", terms.name)
    except BaseException:
        if terms.undo is not None and terms.undo_if_unknown:
            _register(run, key, terms, None)
        raise
    if entry is None and terms.once:
        entry = yield from _start_once(run, key, terms)
    if entry is None:
        entry = yield from attempts(run, key, terms, "step")
    if entry.head.state != "done":
        if entry.head.undo and terms.undo is not None:
            _register(run, key, terms, None)
        raise run.report(_error_in(run, entry, terms))
    value = _value_in(run, key, entry, terms)
    if terms.undo is not None:
        _register(run, key, terms, value)
    return value


def _register(run: Activation, key: str, terms: StepTerms, value: object) -> None:
    assert terms.undo is not None
    run.undos.append(Undo(key, terms.name, terms.undo, value, terms.retry or run.handler.retry))


def _value_in(run: Activation, key: str, entry: Entry, terms: StepTerms) -> Any:  # noqa: ANN401
    """Return the value as it was recorded, also at the first run (rule D2)."""
    try:
        return run.handler.read_value(entry.head.codec, entry.value, kind_of(terms.function))
    except ValueError as error:
        run.stop(f"the result of call {position(key)}, {terms.name}, does not fit: {error}")


def _error_in(run: Activation, entry: Entry, terms: StepTerms) -> Exception:
    """Return the error of a record: a class of `raises`, StepLost, or StepFailed."""
    kind, text, _ = run.handler.read_value(entry.head.codec, entry.value, list[str])
    if entry.head.state == "lost":
        return StepLost(terms.name, kind, text)
    for known in terms.raises:
        if known.__name__ == kind:
            try:
                return known(text)
            except Exception:  # noqa: BLE001  (its class takes other arguments)
                break
    return StepFailed(terms.name, kind, text)


def _start_once(run: Activation, key: str, terms: StepTerms) -> Generator[Part, Any, Entry | None]:
    """Record the start of a step; return the record of its loss if it was started before."""
    note = note_of(key, "start")
    if note not in run.log.entries:
        yield from run.write(note, Head("start", terms.name))
        return None
    lost = ("StepLost", "It was started, and it is not known how it ended.", "")
    head = Head("step", terms.name, "lost", undo=_undoes_unknown(terms))
    return (yield from _record(run, key, head, lost))


def _undoes_unknown(terms: StepTerms) -> bool:
    return terms.undo is not None and terms.undo_if_unknown


def attempts(run: Activation, key: str, terms: StepTerms, kind: str) -> Generator[Part, Any, Entry]:
    """Call a function until it succeeds or is not retried; return its record."""
    note = note_of(key, "tries")
    known = run.log.entries.get(note, Entry(Head("tries", terms.name))).head
    if known.until_us > run.engine.time.latest_us() and known.at_us >= run.hurried_us:
        run.park(known.until_us, error=known.error)
    policy = terms.retry or run.handler.retry
    rehearsal, function = run.rehearsal, terms.function
    if rehearsal is not None:
        function = rehearsal.function_of(terms.name, function)
    while True:
        run.check()
        began_us = run.engine.time.latest_us()
        with run.traced(kind, terms.name, key, known.tries + 1) as span:
            answer = yield UserCall(function, terms.args, terms.kwargs, terms.timeout_us)
            if isinstance(answer, Raised):
                span.fail(answer.error)
        took_us = run.engine.time.latest_us() - began_us
        run.check_after()
        if not isinstance(answer, Raised):
            try:
                returned = kind_of(terms.function)
                value = run.handler.write_value(answer, terms.name, returned, job=run.job)
            except BadInput as error:
                head = Head(
                    kind, terms.name, "failed", undo=_undoes_unknown(terms), took_us=took_us
                )
                return (yield from _record_error(run, key, head, error))
            head = Head(
                kind, terms.name, codec=value.codec, undo=terms.undo is not None, took_us=took_us
            )
            return (yield from run.write(key, head, value.data))
        tries, raised = known.tries + 1, answer.error
        # What ran longer than its time limit may still run.
        state = "timed_out" if isinstance(raised, JobTimeout) else known.state
        if tries >= policy.attempts or not policy.wants(raised) or terms.once:
            is_unknown = state == "timed_out" and _undoes_unknown(terms)
            head = Head(kind, terms.name, "failed", undo=is_unknown, took_us=took_us)
            return (yield from _record_error(run, key, head, raised))
        wait_us = policy.wait_us(tries, run.share(tries))
        until_us = run.engine.time.latest_us() + wait_us
        kind_of_error, text, _ = describe(raised)
        shown = kind_of_error if run.handler.is_sealed else f"{kind_of_error}: {text}"
        known = Head("tries", terms.name, state, tries=tries, until_us=until_us,
                     error=shown[:_ERROR_CHARACTERS_MAX])  # fmt: skip
        yield from run.storing(run.log.note(note, known))
        run.watch.ended(run.job, kind, "retried")
        if wait_us > PAUSE_US_MAX:
            run.park(until_us, error=known.error)
        yield Pause(wait_us, run.engine.clock.sleep)


def _record_error(
    run: Activation, key: str, head: Head, error: BaseException
) -> Generator[Part, Any, Entry]:
    name, text, traceback = describe(error)
    shown = (name, text[:_TRACEBACK_CHARACTERS_MAX], traceback[-_TRACEBACK_CHARACTERS_MAX:])
    return (yield from _record(run, key, head, shown))


def _record(
    run: Activation, key: str, head: Head, shown: Sequence[str]
) -> Generator[Part, Any, Entry]:
    value = run.handler.write_value(list(shown), head.name)
    return (yield from run.write(key, head.changed(codec=value.codec), value.data))
