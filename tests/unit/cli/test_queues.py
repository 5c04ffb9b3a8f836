"""`dueline queues`."""

import re

from tests.harness.shell import WAIT_S, Shell


def test_queues_are_listed_with_their_numbers(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    shell.enqueue("tasks.add", "1", "--after", "1h")
    shell.enqueue("tasks.sleep", "0", "--after", "1h")
    head, default, mute, slow = shell.app("queues", "list").out.splitlines()
    assert head.split() == [
        "QUEUE", "READY", "RUNNING", "SCHEDULED", "RETRYING", "EXPIRED", "DEAD", "OLDEST",
        "WORKERS",
    ]  # fmt: skip
    assert default.split()[:7] == ["default", "1", "0", "1", "0", "0", "0"]
    assert slow.split() == ["slow", "0", "0", "1", "0", "0", "0", "0"]
    assert mute.split()[0] == "mute"
    data = shell.app("queues", "list", "-o", "json").data
    assert [(queue["queue"], queue["ready"], queue["capped"]) for queue in data] == [
        ("default", 1, False), ("mute", 0, False), ("slow", 0, False),
    ]  # fmt: skip


def test_no_queue_is_no_error(shell: Shell) -> None:
    answer = shell("--store", "sqlite:///jobs.db", "queues", "list")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "No queues. The first job creates one.\n"


def test_a_queue_shows_its_settings_and_workers(shell: Shell) -> None:
    shell.enqueue("tasks.sleep", "0", "--after", "1h")
    text = shell.app("queues", "show", "slow").out
    assert re.search("^scheduled +1$", text, re.MULTILINE)
    assert re.search("^keep +1m$", text, re.MULTILINE)
    data = shell.app("queues", "show", "slow", "-o", "json").data
    assert (data["lease_s"], data["keep_s"], data["history"]) == (30, 60, "attempts")
    assert data["live_workers"] == []
    settings = ("queues", "set", "slow", "--keep", "0", "--aging", "0", "--dead-keep", "0")
    for text in (shell.app(*settings).out, shell.app("queues", "show", "slow").out):
        for line in ("keep +none", "aging +never", "dead keep +until purged"):
            assert re.search(f"^{line}$", text, re.MULTILINE), text
    set_ = shell.app(*settings, "-o", "json").data
    assert set_.items() <= shell.app("queues", "show", "slow", "-o", "json").data.items()


def test_a_queue_that_is_not_there_is_not_made(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    answer = shell.app("queues", "show", "nothing")
    assert (answer.code, answer.out) == (4, "")
    assert answer.why == "There is no queue nothing."
    assert "nothing" not in shell.app("queues", "list").out
    assert shell.app("queues", "show", "No!").code == 2


def reason(shell: Shell, job_id: str) -> str:
    """Ask why a job is not running."""
    answer = shell.app("jobs", "explain", job_id, "-o", "json")
    return str(answer.data["reason"])


def test_no_job_of_a_paused_queue_is_claimed(shell: Shell) -> None:
    fast, slow = shell.enqueue("tasks.add", "1"), shell.enqueue("tasks.sleep", "0")
    assert shell.app("queues", "pause", "slow", "mute").out.split() == [
        "QUEUE", "PAUSED", "slow", "yes", "mute", "yes",
    ]  # fmt: skip
    shell.work()
    assert shell.ids("--state", "done") == [fast]
    assert reason(shell, slow) == "paused"
    assert "paused         yes\n" in shell.app("queues", "show", "slow").out
    assert shell.app("queues", "resume", "slow").code == 0
    assert reason(shell, slow) == "no worker"
    shell.work()
    assert sorted(shell.ids("--state", "done")) == sorted([fast, slow])


def test_no_job_of_a_paused_tenant_is_claimed(shell: Shell) -> None:
    # F10
    mine, others = (shell.enqueue("tasks.add", "1", "--tenant", tenant) for tenant in "ab")
    assert shell.app("queues", "pause", "default", "--tenant", "a").out.split() == [
        "QUEUE", "PAUSED", "TENANTS", "default", "a",
    ]  # fmt: skip
    shell.work()
    assert shell.ids("--state", "done") == [others]
    assert reason(shell, mine) == "paused"
    assert shell.app("queues", "show", "default", "-o", "json").data["paused_tenants"] == ["a"]
    assert shell.app("queues", "resume", "default", "--tenant", "a").code == 0
    shell.work()
    assert sorted(shell.ids("--state", "done")) == sorted([mine, others])


def test_no_job_of_a_paused_task_is_run(shell: Shell) -> None:
    # F10
    shell.enqueue("tasks.fail", "no")
    mine, others = shell.enqueue("tasks.add", "1"), shell.enqueue("tasks.fail", "no")
    head, line = shell.app("queues", "pause", "default", "--task", "tasks.add").out.splitlines()
    assert (head.split(), line.split()) == (["QUEUE", "PAUSED", "TASKS"], ["default", "tasks.add"])
    shell.work()
    assert reason(shell, mine) == "paused"
    assert reason(shell, others) in ("dead", "retrying")
    assert shell.app("queues", "show", "default", "-o", "json").data["paused_tasks"] == [
        "tasks.add"
    ]
    assert shell.app("queues", "resume", "default", "--task", "tasks.add").code == 0
    shell.work()
    assert mine in shell.ids("--state", "done")


def test_a_pause_stays_where_an_app_declares_the_queue(shell: Shell) -> None:
    shell.enqueue("tasks.sleep", "0")
    shell.app("queues", "pause", "slow")
    shell.enqueue("tasks.sleep", "0")
    assert shell.app("queues", "show", "slow", "-o", "json").data["paused"] is True


def test_pausing_needs_all_its_queues(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    assert shell.app("queues", "pause", "default", "nothing").code == 4
    assert shell.app("queues", "show", "default", "-o", "json").data["paused"] is False


def test_a_drain_ends_when_the_queue_is_empty(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    shell.enqueue("tasks.fail", "no")
    worker = shell.spawn("worker", "tasks:app", "--burst")
    answer = shell.app("queues", "drain", "default", "--timeout", "120s", "-o", "json")
    worker.communicate(timeout=WAIT_S)
    assert answer.code == 0
    assert answer.data == {"queue": "default", "left": 0, "dead": 1}


def test_a_drain_gives_up_in_time(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1", "--after", "1h")
    answer = shell.app("queues", "drain", "default", "--timeout", "10ms")
    assert answer.code == 124
    assert answer.why == "Jobs left: 0 ready, 0 running, 1 scheduled, 0 retrying."


def test_a_drain_says_that_the_queue_is_paused(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    shell.app("queues", "pause", "default")
    answer = shell.app("queues", "drain", "default", "--timeout", "10ms")
    assert answer.code == 124
    assert answer.err.startswith("The queue default is paused, so its jobs do not run.\n")


def test_a_purge_cancels_what_waits(shell: Shell) -> None:
    now, later = shell.enqueue("tasks.add", "1"), shell.enqueue("tasks.add", "1", "--after", "1h")
    other = shell.enqueue("tasks.sleep", "0")
    answer = shell.app("queues", "purge", "default", "--dry-run", "-o", "json")
    assert answer.data == {"queue": "default", "waiting": 2, "cancelled": 0, "dry_run": True}
    assert answer.err == "Waiting jobs in default: 2.\n"
    assert shell.app("queues", "purge", "default").code == 5
    assert len(shell.ids()) == 3
    answer = shell.app("queues", "purge", "default", "--yes", "-o", "json")
    assert answer.data["cancelled"] == 2
    assert shell.ids() == [other]
    for job_id in (now, later):
        assert shell.app("jobs", "show", job_id, "-o", "json").data["state"] == "cancelled"


def test_a_purge_leaves_what_runs_and_what_is_dead(shell: Shell) -> None:
    dead = shell.enqueue("tasks.fail", "no")
    shell.work()
    running = shell.enqueue("tasks.add", "1")
    shell.start(running)
    assert shell.app("queues", "purge", "default", "-o", "json").data["waiting"] == 0
    assert shell.ids("--state", "running") == [running]
    assert shell.ids("--state", "dead") == [dead]


def test_a_quota_is_set_shown_and_taken_away(shell: Shell) -> None:
    # F9
    shell.enqueue("tasks.add", "1")
    answer = shell.app("queues", "quota", "default")
    assert (answer.out, answer.err) == ("", "The queue default has no quotas.\n")
    for options in (("--depth", "1"), ("--each-tenant", "--rate", "50", "--per", "10s")):
        assert shell.app("queues", "quota", "default", *options).code == 0
    head, each, queue = shell.app("queues", "quota", "default").out.splitlines()
    assert head.split() == ["QUOTA", "TENANT", "DEPTH", "WAITING", "RATE", "PER", "LEFT"]
    assert each.split() == ["each", "tenant", "50", "10s"]
    assert queue.split() == ["queue", "1"]
    answer = shell.app("enqueue", "tasks.add", "1")
    assert answer.code == 5
    assert answer.why == "The queue default may have at most 1 waiting job(s) (it has 1)."
    (entry,) = [
        quota for quota in shell.app("queues", "quota", "default", "-o", "json").data
        if quota["quota"] == "queue"
    ]  # fmt: skip
    assert entry["waiting"] == 1
    assert "QUOTA" in shell.app("queues", "show", "default").out.upper()
    assert shell.app("queues", "quota", "default", "--none").code == 0
    assert shell.app("enqueue", "tasks.add", "1").code == 0


def test_quotas_that_cannot_be_are_refused(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    for words in (
        ("--tenant", "a"),
        ("--none", "--depth", "1"),
        ("--rate", "1"),
        ("--tenant", "a", "--each-tenant", "--depth", "1"),
    ):
        assert shell.app("queues", "quota", "default", *words).code == 2
    assert shell.app("queues", "quota", "nothing", "--depth", "1").code == 4


def test_the_width_of_buckets_is_set_when_a_queue_is_created(shell: Shell) -> None:
    answer = shell.app(
        "queues", "set", "digest", "--bucket", "1h", "--poll", "500ms", "--dead-in-order", "skip"
    )
    assert answer.code == 0
    data = shell.app("queues", "show", "digest", "-o", "json").data
    assert {"bucket_s": 3600, "poll_s": 0.5, "dead_in_order": "skip"}.items() <= data.items()
    assert shell.app("queues", "set", "digest", "--poll", "0", "--bucket", "60m").code == 0
    refused = shell.app("queues", "set", "digest", "--bucket", "10m")
    assert refused.code == 2
    assert refused.why is not None
    assert "only a new queue can have another width" in refused.why
