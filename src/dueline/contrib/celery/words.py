"""Options of Celery that have no counterpart, and what to write instead."""

from collections.abc import Callable, Iterable, Mapping
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
    "producer": "nothing: the application has one store",
    "retry": "nothing: an error of the store is raised, and says what was stored",
    "routing_key": "queue=",
    "serializer": "JSON, the default, or app.payloads.use(...)",
    "shadow": "using(tags=[...])",
    "task_id": "the id of the result; unique= of `using` enqueues once",
}
SETTINGS: Final[Mapping[str, str]] = {
    "CELERY": "the lower-case name, such as timezone",
    "broker_transport": "nothing: a job runs again when the lease of its worker ends",
    "broker": "Celery(broker='sqlite:///jobs.db'), or DUELINE_STORE",
    "database": "nothing: results are in the store",
    "imports": "Celery(include=[...])",
    "include": "Celery(include=[...])",
    "redis": "nothing: results are in the store",
    "result_backend": "nothing: results are in the store",
    "result": "app.queue('default', keep=...)",
    "task_always_eager": "@pytest.mark.dueline(inline=True) above a test",
    "task_default_priority": "priority= of the tasks",
    "task_queue": "queue= of the tasks, and app.queue(...), without kombu.Queue",
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
    "update_state": "`self.update_state` in a task with bind=True",
}
WORKFLOW: Final[Mapping[str, str]] = {
    "apply": "delay(), and a worker in the test",
    "freeze": "delay(), whose result has the id",
    "link": "chain(..., other.s()), or link= of `apply_async`",
    "link_error": "link_error= of `apply_async`",
    "on_error": "link_error= of `apply_async`",
    "skew": "set(countdown=...) of its signatures",
}
NAMES: Final[Mapping[str, str]] = {
    "GroupResult": "AsyncResult, which a group returns, too",
    "ResultSet": "a group, or get() of each result",
    "Retry": "self.retry(...)",
    "Task": "functions with @app.task; share code by @app.middleware or plain functions",
    "chunks": "enqueue_many([...])",
    "current_app": "the application itself",
    "current_task": "bind=True and `self`",
    "get_task_logger": "logging.getLogger(__name__)",
    "signals": 'hooks, such as @app.on("dead")',
    "signature": "from dueline.contrib.celery import signature",
    "solar": "a task that runs daily and enqueues with using(due=...)",
    "states": "the names of states, such as 'SUCCESS'",
}
UTILS: Final[Mapping[str, str]] = {
    "log": "logging.getLogger(__name__) instead of get_task_logger(__name__)"
}
SIGNALS: Final[Mapping[str, str]] = {
    "celeryd_init": "code in the module of the application",
    "setup_logging": "logging.basicConfig(...) in the module of the application, which is kept",
    "worker_init": "what handlers open lazily, or @app.middleware",
    "worker_process_init": "what handlers open lazily, or @app.middleware",
    "worker_process_shutdown": "atexit.register(...)",
    "worker_ready": "`/readyz` of `dueline worker --http`",
    "worker_shutdown": "atexit.register(...)",
}


def setting_word(name: str) -> str | None:
    """Return what to write instead of a setting; None if it can be left out."""
    return next((word for start, word in SETTINGS.items() if name.startswith(start)), None)


def refuse(names: Iterable[str], words: Mapping[str, str], where: str) -> None:
    """Raise BadInput for the first option that has no counterpart."""
    for name in names:
        word = words.get(name)
        hint = f"Use {word}." if word else "Remove it."
        raise BadInput(f"{where} has no counterpart of Celery's `{name}`.", hint=hint)


def refuse_attribute(name: str, words: Mapping[str, str], what: object) -> NoReturn:
    """Raise AttributeError for a method of Celery, with what to write instead."""
    if name in words:
        # Python adds a stop before its own suggestion.
        raise AttributeError(f"{what} has no counterpart of Celery's `{name}`. Use {words[name]}")
    raise AttributeError(f"{what} has no attribute {name!r}")


def names_elsewhere(words: Mapping[str, str], module: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a module, which names what to write instead of Celery's names."""

    def refuse_name(name: str) -> NoReturn:
        if name in words:
            raise ImportError(f"{module} has no {name}. Use {words[name]}.")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return refuse_name
