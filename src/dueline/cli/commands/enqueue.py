"""`dueline enqueue`: put one job in."""

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from dueline.api.application import Dueline
from dueline.api.job_handle import Job
from dueline.cli.errors import Exit, say_failure
from dueline.cli.json_lines import enqueue_calls, read_calls
from dueline.cli.options import (
    AfterOption,
    DeadlineOption,
    DueOption,
    ExpiresOption,
    FileOption,
    TagsOption,
    UniqueMode,
    WindowOption,
    read_instant,
)
from dueline.cli.output import Output, Raw, note
from dueline.cli.session import session_of
from dueline.core.call_options import Unique
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput, JobFailed

_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def enqueue(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task of the application.")],
    argument: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARG", help="JSON, or NAME=JSON; other words are texts."),
    ] = None,
    *,
    file: FileOption = None,
    after: AfterOption = None,
    due: DueOption = None,
    priority: Annotated[
        int | None, typer.Option(metavar="N", help="Larger runs first; 0 is the default.")
    ] = None,
    deadline: DeadlineOption = None,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another queue than the task's own.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Whose job it is.")] = None,
    tag: TagsOption = None,
    expires: ExpiresOption = None,
    window: WindowOption = None,
    unique: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only while no living job has this key.")
    ] = None,
    mode: Annotated[
        UniqueMode | None, typer.Option("--mode", help="With --unique: what if one has it.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the result, and print it.")
    ] = False,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --wait: give up after so long.")
    ] = None,
) -> int:
    """Put a job in; prints its id, with --wait its result. Or as many as a file has lines.

    With --wait it exits 1 if the job ends without a result, 124 if --timeout ran out.
    """
    most = _most(timeout, wait=wait)
    if file is not None and (argument or wait or unique):
        raise BadInput("--file stands beside arguments, --wait or --unique.", hint="Leave it out.")
    args, kwargs = read_arguments(argument or ())
    app = session_of(context).application()
    try:
        using = app.task_named(task).using(
            due=None if due is None else read_instant(due),
            after=_span(after),
            priority=priority,
            deadline=_span(deadline),
            queue=queue,
            tenant=tenant,
            expires=_span(expires),
            window=_span(window),
            unique=_key(unique, mode),
            tags=tag,
        )
        if file is not None:
            done = enqueue_calls(using, read_calls(file, app.task_named(task)))
            Output.of(context, app.queues.engine).entry({"task": task, "enqueued": done})
            return Exit.DONE
        if wait:
            _check_kept(app, queue or app.task_named(task).queue)
        job = using.enqueue(*args, **kwargs)
        if wait:
            return _wait(context, app, app.job(job.id), most)
        Output.of(context, app.queues.engine).text(job.id, {"id": job.id, "task": task})
    finally:
        app.close()
    return Exit.DONE


def read_arguments(words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Read the arguments of a call as they are typed: in order, then by name.

    Raises: BadInput: one is neither JSON nor a text, or stands in the wrong place.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        named = _NAMED.fullmatch(word)
        if named is None:
            if kwargs:
                raise BadInput(f"{word!r} stands behind named arguments.", hint="Name it too.")
            args.append(_value(word))
        elif named[1] in kwargs:
            raise BadInput(f"The argument {named[1]} is given twice.")
        else:
            kwargs[named[1]] = _value(named[2])
    return args, kwargs


def _value(text: str) -> Any:  # noqa: ANN401  (whatever JSON holds)
    """Read JSON; what neither is nor looks like JSON is a text."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise BadInput(f"The argument {text!r:.80} is nested too deeply.") from error
    except ValueError as error:
        if text[:1] in ("{", "[", '"'):
            raise BadInput(
                f"The argument {text!r:.80} is not JSON: {error}.",
                hint="""Quote it for the shell, as in '{"a": 1}'.""",
            ) from error
        return text


def _refuse(word: str) -> None:
    """Let NaN and Infinity be texts: JSON does not know them."""
    raise ValueError(word)


def _most(timeout: str | None, *, wait: bool) -> timedelta | None:
    if timeout is not None and not wait:
        raise BadInput("--timeout is given without --wait.", hint="Add --wait.")
    return _span(timeout)


def _key(key: str | None, mode: UniqueMode | None) -> Unique | None:
    """Take a key as it stands: braces are no names here."""
    if key is None:
        if mode is not None:
            raise BadInput("--mode is given without --unique.", hint="Add --unique KEY.")
        return None
    plain = key.replace("{", "{{").replace("}", "}}")
    return Unique(plain) if mode is None else Unique(plain, mode=mode.value)


def _span(text: str | None) -> timedelta | None:
    return None if text is None else timedelta(microseconds=parse_span(text))


def _check_kept(app: Dueline, queue: str) -> None:
    if app.queues.engine.catalog.settings(queue).keep_us == 0:
        raise BadInput(
            f"The queue {queue} keeps no results, so there is nothing to wait for.",
            hint="Leave --wait out, or set keep= of the queue.",
        )


def _wait(context: typer.Context, app: Dueline, job: Job[Any], most: timedelta | None) -> int:
    note(f"enqueued {job.id}")
    output = Output.of(context, app.queues.engine)
    try:
        text = json.dumps(
            job.result(None if most is None else most.total_seconds()), ensure_ascii=False
        )
    except JobFailed as error:
        output.data({"id": job.id, "state": job.status, "error": error.message})
        return say_failure(
            "the job ended without a result",
            why=error.message,
            attempt=f"See `dueline jobs show {job.id}`.",
            code=Exit.NEGATIVE,
        )
    except TimeoutError as error:
        output.data({"id": job.id, "state": job.status})
        return say_failure(
            "the time to wait ran out; the job goes on",
            why=str(error),
            attempt=f"See `dueline jobs explain {job.id}`.",
            code=Exit.TIMEOUT,
        )
    except KeyboardInterrupt:
        note(f"The job {job.id} goes on.")
        raise
    output.text(text, {"id": job.id, "state": "done", "result": Raw(text)})
    return Exit.DONE
