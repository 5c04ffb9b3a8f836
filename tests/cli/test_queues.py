"""`dueline queues`."""

from tests.cli.conftest import Shell


def test_queues_are_listed_with_their_numbers(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    shell.enqueue("tasks.add", "1", "--after", "1h")
    shell.enqueue("tasks.sleep", "0", "--after", "1h")
    head, default, mute, slow = shell.app("queues", "list").out.splitlines()
    assert head.split() == [
        "QUEUE", "READY", "RUNNING", "SCHEDULED", "RETRYING", "DEAD", "OLDEST", "WORKERS",
    ]  # fmt: skip
    assert default.split()[:6] == ["default", "1", "0", "1", "0", "0"]
    assert slow.split() == ["slow", "0", "0", "1", "0", "0", "0"]
    assert mute.split()[0] == "mute"
    data = shell.app("queues", "list", "-o", "json").data
    assert [(one["queue"], one["ready"], one["capped"]) for one in data] == [
        ("default", 1, False), ("mute", 0, False), ("slow", 0, False),
    ]  # fmt: skip


def test_no_queue_is_no_error(shell: Shell) -> None:
    answer = shell("--store", "sqlite:///empty.db", "queues", "list")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "There is no queue yet; the first job makes one.\n"


def test_a_queue_shows_its_settings_and_workers(shell: Shell) -> None:
    shell.enqueue("tasks.sleep", "0", "--after", "1h")
    text = shell.app("queues", "show", "slow").out
    assert "scheduled  1\n" in text
    assert "keep       1m\n" in text
    data = shell.app("queues", "show", "slow", "-o", "json").data
    assert (data["lease_s"], data["keep_s"], data["history"]) == (30, 60, "attempts")
    assert data["live_workers"] == []


def test_a_queue_that_is_not_there_is_not_made(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    answer = shell.app("queues", "show", "nothing")
    assert (answer.code, answer.out) == (4, "")
    assert answer.why == "There is no queue nothing."
    assert "nothing" not in shell.app("queues", "list").out
    assert shell.app("queues", "show", "No!").code == 2
