"""Pauses of single jobs on the command line."""

from tests.harness.shell import Shell


def test_the_command_line_pauses_and_resumes(shell: Shell) -> None:
    jobs = [shell.enqueue("tasks.echo", "1") for _ in range(2)]
    answer = shell.app("jobs", "pause", *jobs, "-o", "json")
    assert answer.data == [{"id": job, "change": "paused"} for job in jobs]
    shell.work()
    assert shell.ids("--state", "paused") == jobs
    assert shell.app("queues", "list", "-o", "json").data[0]["paused"] == 2
    assert shell.app("jobs", "retry", jobs[0]).code == 5
    shell.app("jobs", "retry", "--all-matching", "--queue", "default", "--yes")
    assert shell.app("jobs", "show", jobs[0], "-o", "json").data["state"] == "paused"
    shell.app("jobs", "resume", jobs[0])
    shell.work()
    assert shell.app("jobs", "show", jobs[0], "-o", "json").data["state"] == "done"
    assert shell.app("jobs", "resume", jobs[0]).code == 5
    assert shell.app("doctor").code in (0, 6)
