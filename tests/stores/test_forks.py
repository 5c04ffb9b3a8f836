"""A workflow is forked, on each kind of store (W15)."""

from dueline import Dueline, Retry, group, pipeline
from dueline.api.job_handle import parse_id
from dueline.workflows import records

LONG = "x" * 5000


def test_a_fork_goes_on_without_the_old_workflow(url: str) -> None:
    # W15
    app = Dueline(url)
    ran: list[str] = []
    fails = [True]

    @app.task(name="note")
    def note(name: str) -> str:
        ran.append(name)
        return name

    @app.task(name="join", retry=Retry(attempts=1))
    def join(parts: list[str], last: str) -> str:
        if fails:
            fails.clear()
            raise ValueError(last)
        return "".join([*parts, last])

    part = pipeline(group(note.step("a"), note.step(LONG)), join.step("z"), note.step())
    flow = app.start(part)
    app.run_worker(burst=True)
    assert flow.status == "failed"
    assert sorted(ran) == ["a", LONG]
    other = flow.fork(2)
    for _ in records.forget(app.engine.store, parse_id(flow.id), flow.look.layout):
        pass
    ran.clear()
    app.run_worker(burst=True)
    assert other.result(timeout=60) == f"a{LONG}z"
    assert ran == [f"a{LONG}z"]
    assert other.progress.ended == {"done": 4}
    app.close()
