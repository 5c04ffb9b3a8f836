"""Asynchronous twins of jobs and workflows (C17)."""

import asyncio
import inspect
import threading

import pytest

from dueline import Dueline, Flow, Job, pipeline
from dueline.core.job import JobId
from dueline.jobs.queue import Found


@pytest.fixture
def app() -> Dueline:
    app = Dueline("memory://")
    app.task(name="add")(lambda a, b: a + b)
    return app


@pytest.mark.parametrize("kind", [Job, Flow])
def test_each_twin_has_the_signature_of_its_original(kind: type) -> None:
    # C17
    twins = [
        name
        for name in vars(kind)
        if name[0] == "a" and name[1:] in vars(kind) and not name.startswith("_")
    ]
    assert {"astatus", "aprogress", "acancel", "aretry"} <= set(twins)
    for name in twins:
        twin, original = getattr(kind, name), inspect.getattr_static(kind, name[1:])
        original = getattr(original, "fget", original)
        assert inspect.iscoroutinefunction(twin)
        assert inspect.signature(twin) == inspect.signature(original)
        assert (twin.__name__, twin.__qualname__) == (name, f"{kind.__name__}.{name}")
        assert f"`{name[1:]}`" in (twin.__doc__ or "")


def test_they_do_the_same_in_another_thread(app: Dueline, monkeypatch: pytest.MonkeyPatch) -> None:
    # C17
    threads: list[int] = []
    find = app.queues.find

    def noted(job: JobId) -> Found:
        threads.append(threading.get_ident())
        return find(job)

    monkeypatch.setattr(app.queues, "find", noted)

    async def ask() -> None:
        add = app.task_named("add")
        job = await add.aenqueue(1, 2)
        assert await job.astatus() == "ready"
        assert await job.aprogress() is None
        assert await job.ameta() == {}
        await job.areschedule(after=60)
        assert await job.astatus() == "scheduled"
        await job.aretry()
        assert await job.acancel(force=True)
        assert await job.astatus() == "cancelled"
        flow = await app.astart(pipeline(add.step(1, 2), add.step(3)), name="sum")
        assert await flow.astatus() == "running"
        assert (await flow.aprogress()).total == 2
        assert await flow.aretry() == 0
        await flow.acancel()
        assert await flow.astatus() == "cancelled"
        with pytest.raises(TypeError, match=r"flow cannot be awaited; \w+ is stored.*app\.astart"):
            await flow  # type: ignore[misc]

    asyncio.run(ask())
    assert threads
    assert threading.get_ident() not in threads
