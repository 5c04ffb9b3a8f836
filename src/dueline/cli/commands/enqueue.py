"""`dueline enqueue`: enqueue jobs."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from dueline.api.application import Dueline
from dueline.api.connect import check_exists
from dueline.api.job_handle import Job
from dueline.cli.call_options import CallOptions
from dueline.cli.errors import Exit, say_failure
from dueline.cli.json_lines import enqueue_calls, read_calls
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import FileOption, argument, option, read_span
from dueline.cli.output import Output, Raw, note
from dueline.cli.session import OF_THIS_PROCESS, is_of_this_process, session_of
from dueline.core.errors import BadInput, JobFailed

_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@with_option_groups
def enqueue(
    context: typer.Context,
    task: Annotated[str, argument("TASK", "Name of the task.")],
    argument: Annotated[
        list[str] | None, argument("ARG", "JSON, NAME=JSON, or a plain string.")
    ] = None,
    *,
    file: FileOption = None,
    options: CallOptions,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it.")] = False,
    timeout: Annotated[str | None, option("DURATION", "Limit the duration of --wait.")] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Enqueue without the application's code.")
    ] = False,
) -> int:
    """Enqueue a job, or one job per line of a file.

    Prints the job's id, or with --wait its result. Arguments are checked against the task before
    anything is written. Negative numbers go after `--`. With --wait, exits 1 if the job ends
    without a result, and 124 after --timeout.

    With --unchecked, no application is imported: the worker checks the arguments, and a job whose
    arguments fit no worker waits, see `dueline queues set --version-wait`.

    Example: dueline enqueue tasks.send ann@example.org --after 10m
    """
    most = _most(timeout, wait=wait)
    if file is not None and (argument or wait or options.unique):
        raise BadInput(
            "--file cannot be combined with arguments, --wait or --unique.",
            hint="Put the arguments into the file.",
        )
    args, kwargs = read_arguments(argument or ())
    app = application_of(context, unchecked=unchecked)
    try:
        own = app.unchecked(task) if unchecked else app.task_named(task)
        using = own.using(**options.read())
        if file is not None:
            done = enqueue_calls(using, read_calls(file, own))
            Output.of(context, app.queues.engine).entry({"task": task, "enqueued": done})
            return Exit.DONE
        if wait:
            _check_kept(app, options.queue or own.queue)
        try:
            job = using.enqueue(*args, **kwargs)
        except BadInput as error:
            raise _with_names(error, args, kwargs) from error
        if is_of_this_process(app.url):
            note(OF_THIS_PROCESS)
        if wait:
            return _wait(context, app, app.job(job.id), most)
        Output.of(context, app.queues.engine).text(job.id, {"id": job.id, "task": task})
    finally:
        app.close()
    return Exit.DONE


def application_of(context: typer.Context, *, unchecked: bool) -> Dueline:
    """Return the application, or with `unchecked` one without tasks on the same store.

    Raises: ConfigError: no application or store is named, or there is no such file.
    """
    session = session_of(context)
    if not unchecked:
        return session.application(otherwise=" Without its code, pass --unchecked.")
    check_exists(session.address)
    return Dueline(session.address)


def _with_names(error: BadInput, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BadInput:
    """Return the error of a call; if its only argument is an object, say how names are written."""
    if kwargs or len(args) != 1 or not isinstance(args[0], dict) or not args[0]:
        return error
    words = " ".join(f"{name}={_word_of(value)}" for name, value in args[0].items())
    return BadInput(error.message, hint=f"Write arguments by name: `{words}`.")


def _word_of(value: object) -> str:
    text = value if isinstance(value, str) and value.isalnum() else json.dumps(value)
    return shlex.quote(text)


def read_arguments(words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Read the arguments of a call: positional ones first, then named ones.

    Raises: BadInput: an argument is invalid, repeated or in the wrong order.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        named = _NAMED.fullmatch(word)
        if named is None:
            if kwargs:
                raise BadInput(
                    f"The positional argument {word!r:.80} follows a named one.",
                    hint="Pass it first, or by name.",
                )
            args.append(_value(word))
        elif named[1] in kwargs:
            raise BadInput(f"The argument {named[1]} is passed twice.")
        else:
            kwargs[named[1]] = _value(named[2])
    return args, kwargs


def _value(text: str) -> Any:  # noqa: ANN401  (whatever JSON holds)
    """Read JSON; a word that does not look like JSON is a string."""
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
    """Raise ValueError for NaN and Infinity, which are not JSON."""
    raise ValueError(word)


def _most(timeout: str | None, *, wait: bool) -> timedelta | None:
    if timeout is not None and not wait:
        raise BadInput("--timeout needs --wait.", hint="Add --wait.")
    return None if timeout is None else read_span(timeout)


def _check_kept(app: Dueline, queue: str) -> None:
    if app.queues.engine.catalog.settings(queue).keep_us == 0:
        raise BadInput(
            f"The queue {queue} keeps no results, so there is nothing to wait for.",
            hint=f"Omit --wait, or use `dueline queues set {queue} --keep 1d`.",
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
            "--timeout expired; the job continues",
            why=str(error),
            attempt=f"See `dueline jobs explain {job.id}`.",
            code=Exit.TIMEOUT,
        )
    except KeyboardInterrupt:
        note(f"The job {job.id} continues.")
        raise
    output.text(text, {"id": job.id, "state": "done", "result": Raw(text)})
    return Exit.DONE
