"""`dueline schedules`."""

from tests.harness.shell import STORE, Shell


def test_a_schedule_is_added_listed_and_shown(shell: Shell) -> None:
    # V7
    answer = shell.app(
        "schedules", "add", "nightly", "tasks.add", "1", "b=3",
        "--cron", "30 3 * * mon-fri", "--tz", "Europe/Vilnius", "--catch-up", "last",
        "--overlap", "skip", "-o", "json",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert answer.data["when"] == "30 3 * * mon-fri (Europe/Vilnius)"
    assert shell.app("schedules", "add", "often", "tasks.whisper", "--every", "10m").code == 0
    head, nightly, often = shell.app("schedules", "list").out.splitlines()
    assert head.split() == [
        "SCHEDULE",
        "TASK",
        "WHEN",
        "NEXT",
        "PAUSED",
        "ENDED",
        "STORED",
        "SKIPPED",
    ]
    assert nightly.split()[:2] == ["nightly", "tasks.add"]
    assert often.split()[:2] == ["often", "tasks.whisper"]
    data = shell.app("schedules", "show", "nightly", "-o", "json").data
    assert (data["args"], data["catch_up"], data["overlap"], data["queue"]) == (
        [1, 3], "last", "skip", "default",
    )  # fmt: skip
    text = shell.app("schedules", "show", "often").out
    assert "every" in text
    assert "10m" in text
    assert "queue     mute" in text


def test_its_next_times_are_told(shell: Shell) -> None:
    shell.app("schedules", "add", "s", "tasks.whisper", "--cron", "0 3 1 * *")
    times = shell.app("schedules", "next", "s", "-n", "3", "-o", "json").data
    assert [moment["at"][8:19] for moment in times] == ["01T03:00:00"] * 3
    assert len(shell.app("schedules", "next", "s").out.splitlines()) == 6


def test_it_is_paused_resumed_triggered_and_removed(shell: Shell) -> None:
    shell.app("schedules", "add", "s", "tasks.add", "1", "--every", "30s")
    assert len(shell.ids()) == 2
    assert "paused    yes" in shell.app("schedules", "pause", "s").out
    assert shell.ids() == []
    answer = shell.app("schedules", "next", "s")
    assert (answer.out, answer.err) == ("", "The schedule s is paused.\n")
    job_id = shell.app("schedules", "trigger", "s").out.strip()
    assert shell.ids() == [job_id]
    shell.work()
    assert shell.app("jobs", "show", job_id, "-o", "json").data["result"] == 3
    assert shell.app("schedules", "resume", "s").code == 0
    assert len(shell.ids()) == 2
    assert shell.app("schedules", "remove", "s").code == 0
    assert shell.ids() == []
    answer = shell.app("schedules", "list")
    assert answer.out == ""
    assert answer.err.startswith("No schedules.")


def test_a_list_says_that_no_worker_stores_their_jobs(shell: Shell) -> None:
    assert shell.app("schedules", "add", "s", "tasks.whisper", "--every", "10m").code == 0
    answer = shell.app("schedules", "list")
    assert answer.err == (
        "No live worker stores their jobs; schedules: 1, such as s. "
        "Start a worker, of any queue: dueline worker MODULE:APP\n"
    )
    answer = shell.app("doctor")
    assert "schedules: warning" in answer.err
    assert answer.code == 0
    with shell.worker():
        assert shell.app("schedules", "list").err == ""


def test_what_cannot_be_is_refused_with_the_reason(shell: Shell) -> None:
    for words, code, why in (
        (("show", "nothing"), 4, "There is no schedule nothing."),
        (("add", "s", "tasks.add", "1"), 2,
         "A schedule has either a cron expression, an interval or one time."),
        (("add", "s", "tasks.add", "--every", "1m"), 2, "tasks.add"),
        (("add", "s", "tasks.nothing", "--every", "1m"), 4, "The app has no task 'tasks.nothing'."),
        (("add", "s s", "tasks.add", "1", "--every", "1m"), 2,
         "'s s' is not a valid schedule name."),
        (("add", "s", "tasks.add", "1", "--cron", "0 3 * * *", "--tz", "Mars"), 2,
         "There is no time zone 'Mars'."),
    ):  # fmt: skip
        answer = shell.app("schedules", *words)
        assert (answer.code, answer.out) == (code, ""), answer
        assert why in answer.why
    assert shell.app("schedules", "list").out == ""


def test_it_may_have_one_time_or_an_end(shell: Shell) -> None:
    add = ("schedules", "add", "s", "tasks.add", "1", "-o", "json")
    once = shell.app(*add, "--at", "2030-01-01T09:00:00+02:00").data
    assert (once["when"], once["until"][:16]) == ("at 2030-01-01T07:00:00Z", "2030-01-01T07:00")
    few = shell.app(*add, "--every", "1h", "--count", "3", "--jitter", "5m").data
    assert (few["when"], few["count"]) == ("every 1h", 3)
    assert len(shell.app("schedules", "next", "s", "-o", "json").data) == 3
    assert "window" in shell.app("schedules", "show", "s").out
    shell.app(*add, "--every", "1h", "--until", "2020-01-01T00:00:00Z")
    assert shell.app("schedules", "next", "s").err == "The schedule s has ended.\n"
    assert shell.app("schedules", "show", "s", "-o", "json").data["ended"]
    assert "No live worker stores" not in shell.app("schedules", "list").err
    assert shell.app(*add, "--at", "soon", "--every", "1h").code == 2


def test_a_schedule_is_added_without_the_code_of_its_task(shell: Shell) -> None:
    words = ("schedules", "add", "sums", "tasks.add", "1", "--every", "5s")
    answer = shell("--store", STORE, *words)
    assert answer.code == 7
    assert answer.err.endswith("Without its code, pass --unchecked.\n")
    shell.enqueue("tasks.add", "1")
    answer = shell("--store", STORE, *words, "--unchecked", "--queue", "default", "-o", "json")
    assert (answer.code, answer.data["task"]) == (0, "tasks.add")
