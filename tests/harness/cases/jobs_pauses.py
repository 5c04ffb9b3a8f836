"""An application pauses a queue, or some of its jobs."""

from pathlib import Path

from dueline import Dueline


def a_paused_tenant_waits_and_the_others_go_on(url: str, tmp_path: Path) -> None:
    # F10
    app = Dueline(url.format(tmp_path))
    ran: list[str] = []

    @app.task(name="note", queue="q")
    def note(text: str) -> None:
        ran.append(text)

    app.pause("q", tenant="a")
    app.pause("q", tenant="")
    jobs = [note.using(tenant=tenant).enqueue(tenant) for tenant in ("a", "b", "", "c") * 2]
    app.run_worker(burst=True)
    assert sorted(ran) == ["b", "b", "c", "c"]
    assert [job.status for job in jobs[::2]] == ["ready"] * 4
    app.resume("q", tenant="")
    app.run_worker(burst=True)
    assert sorted(ran[4:]) == ["", ""]
    app.resume("q")  # which is not paused
    app.run_worker(burst=True)
    assert jobs[0].status == "ready"
    app.resume("q", tenant="a")
    app.run_worker(burst=True)
    assert ran[6:] == ["a", "a"]
    app.close()
