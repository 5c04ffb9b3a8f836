"""Tags on the command line."""

from tests.harness.shell import Shell


def test_jobs_are_listed_by_a_tag(shell: Shell) -> None:
    # C20, V1
    tagged = shell.enqueue("tasks.add", "1", "--tag", "night", "--tag", "import")
    shell.enqueue("tasks.add", "2")
    assert shell.ids("--tag", "night") == shell.ids("--tag", "import") == [tagged]
    assert shell.ids("--tag", "nigh") == []
    assert shell.app("jobs", "show", tagged, "-o", "json").data["tags"] == ["import", "night"]
    shell.work()
    ended = ("jobs", "list", "--ended", "--since", "1h", "-o", "json")
    assert [job["id"] for job in shell.app(*ended, "--tag", "night").data] == [tagged]
    assert shell.app(*ended, "--tag", "nigh").data == []
    assert len(shell.app(*ended).data) == 2
    assert shell.app(*ended, "--until", "30m").data == []
    assert shell.app("jobs", "list", "--since", "1h").code == 2
    assert shell.app(*ended, "since:2h").code == 2
    assert shell.app("jobs", "list", "--ended", "--since", "x").code == 2


def test_tags_of_a_waiting_job_are_replaced_or_taken_away(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1", "--tag", "old")
    assert shell.app("jobs", "change", job_id, "--tag", "new", "--priority", "4").code == 0
    (job,) = shell.app("jobs", "list", "-o", "json").data
    assert (job["tags"], job["priority"]) == (["new"], 4)
    assert shell.app("jobs", "change", job_id, "--no-tags").code == 0
    assert shell.app("jobs", "list", "-o", "json").data[0]["tags"] == []
    assert shell.app("jobs", "change", job_id, "--no-tags", "--tag", "x").code == 2
    assert shell.app("jobs", "change", job_id).code == 2
    assert shell.app("enqueue", "tasks.add", "1", "--tag", "").code == 2


def test_all_jobs_with_a_tag_are_changed(shell: Shell) -> None:
    # O6
    tagged = shell.enqueue("tasks.add", "1", "--tag", "night")
    other = shell.enqueue("tasks.add", "2")
    words = ("--all-matching", "--tag", "night", "--yes")
    assert shell.app("jobs", "cancel", *words, "-o", "json").data["cancelled"] == 1
    assert shell.ids() == [other]
    assert shell.app("jobs", "show", tagged, "-o", "json").data["state"] == "cancelled"
    assert shell.app("jobs", "cancel", "--tag", "night").code == 2  # all, or ids


def test_headers_are_given_and_shown(shell: Shell) -> None:
    # C21
    given = ["--header", "request=7f3a", "--header", "note=a=b"]
    job_id = shell.enqueue("tasks.add", "1", *given)
    shown = shell.app("jobs", "show", job_id, "-o", "json").data
    assert shown["headers"] == {"note": "a=b", "request": "7f3a"}
    assert "headers" not in shell.app("jobs", "show", shell.enqueue("tasks.add", "1")).out
    answer = shell.app("enqueue", "tasks.add", "1", "--header", "request")
    assert answer.code == 2
    assert "NAME=VALUE" in answer.why


def test_headers_of_a_waiting_job_are_replaced_or_taken_away(shell: Shell) -> None:
    # C20
    job_id = shell.enqueue("tasks.add", "1", "--header", "a=1", "--tag", "kept")
    assert shell.app("jobs", "change", job_id, "--header", "b=2", "--priority", "4").code == 0
    job = shell.app("jobs", "show", job_id, "-o", "json").data
    assert (job["headers"], job["tags"], job["priority"]) == ({"b": "2"}, ["kept"], 4)
    assert shell.app("jobs", "change", job_id, "--no-headers", "--header", "x=1").code == 2
    assert shell.app("jobs", "change", job_id).code == 2
    assert shell.app("jobs", "change", job_id, "--no-headers").code == 0
    assert "headers" not in shell.app("jobs", "show", job_id, "-o", "json").data
