"""Options of Celery that have no counterpart, and what to write instead."""

from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from dueline.core.errors import BadInput

TASK: Final[Mapping[str, str]] = {
    "base": "functions, and @app.middleware for what is around them",
    "compression": "app.payloads.use(compress_above=8192)",
    "pydantic": "annotations: dueline checks arguments against them",
    "serializer": "JSON, the default, or app.payloads.use(...)",
    "store_errors_even_if_ignored": "nothing: a dead-letter job keeps its error",
    "throws": "nothing: dead-letter jobs keep their error, whatever it is",
    "track_started": "nothing: the state STARTED is always known",
    "typing": "annotations: arguments are always checked",
}
CALL: Final[Mapping[str, str]] = {
    "chain": "chain(...)",
    "compression": "app.payloads.use(compress_above=8192)",
    "connection": "using(tx=...) for a transaction of yours",
    "exchange": "queue=",
    "group_id": "group(...)",
    "headers": "an argument of the task",
    "producer": "nothing: the application has one store",
    "retry": "nothing: an error of the store is raised, and says what was stored",
    "routing_key": "queue=",
    "serializer": "JSON, the default, or app.payloads.use(...)",
    "shadow": "using(tags=[...])",
    "task_id": "the id of the result; unique= of `using` enqueues once",
}
SETTINGS: Final[Mapping[str, str]] = {
    "broker": "Celery(broker='sqlite:///jobs.db'), or DUELINE_STORE",
    "database": "nothing: results are in the store",
    "redis": "nothing: results are in the store",
    "result_backend": "nothing: results are in the store",
    "result_expires": "app.queue('default', keep=...)",
    "result": "app.queue('default', keep=...)",
    "task_always_eager": "@pytest.mark.dueline(inline=True) above a test",
    "task_default_queue": "queue= of the tasks",
    "task_default_rate_limit": "rate_limit= of the tasks",
    "task_routes": "queue= of the tasks",
    "task_soft_time_limit": "soft_time_limit= of the tasks",
    "task_time_limit": "time_limit= of the tasks",
    "task_queue": "queue= of the tasks, and app.queue(...)",
    "task_track_started": "nothing: the state STARTED is always known",
    "worker": "the options of `dueline worker`, such as --concurrency",
}
APP: Final[Mapping[str, str]] = {
    "Beat": "beat_schedule; every worker stores its jobs",
    "Task": "functions with @app.task",
    "Worker": "app.run_worker(), or `dueline worker`",
    "config_from_object": "app.conf.update(...)",
    "control": "`dueline workers`, `dueline jobs cancel`, and app.pause(...)",
    "events": "the history, and hooks such as @app.on('dead')",
    "on_after_configure": "app.add_periodic_task(...) below the tasks",
    "on_after_finalize": "app.add_periodic_task(...) below the tasks",
    "worker_main": "app.run_worker(), or `dueline worker`",
}
OBJECT: Final[Mapping[str, str]] = {
    "apply": "the call itself",
    "apply_async_on_commit": "using(tx=connection).enqueue(...)",
    "children": "dueline.Flow of `app.flow(id)`",
    "chunks": "using().enqueue_many([...])",
    "delay_on_commit": "using(tx=connection).enqueue(...)",
    "forget": "app.queue(..., keep=...); results expire by themselves",
    "map": "using().enqueue_many([...])",
    "parent": "the handle of the first task",
    "replace": "a chain, or enqueue the other task and return",
    "request": "bind=True; a request exists only in a running task",
    "starmap": "using().enqueue_many([...])",
    "then": "link=",
    "traceback": "`dueline jobs show ID`",
    "update_state": "a plain task with `ctx: Context` and ctx.progress(done, total, note)",
}


def refuse(names: Iterable[str], words: Mapping[str, str], where: str) -> None:
    """Raise BadInput for the first option that has no counterpart."""
    for name in names:
        word = words.get(name)
        hint = f"Use {word}." if word else "Remove it."
        raise BadInput(f"{where} has no counterpart of Celery's `{name}`.", hint=hint)


def refuse_attribute(name: str, words: Mapping[str, str], what: object) -> NoReturn:
    """Raise AttributeError for a method of Celery, with what to write instead."""
    if name in words:
        raise AttributeError(f"{what} has no counterpart of Celery's `{name}`. Use {words[name]}.")
    raise AttributeError(f"{what} has no attribute {name!r}.")
