"""`dueline alerts`."""

from dueline import Dueline
from dueline.coordination import notes
from dueline.core.codec import encode
from dueline.foresight.alert_engine import Note
from dueline.foresight.alert_monitor import KIND
from dueline.foresight.alerts import Alert, Condition
from tests.harness.shell import STORE, Shell


def test_raised_alerts_are_listed(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    answer = shell("alerts", "--store", STORE)
    assert (answer.code, answer.err) == (0, "No alert is raised.\n")
    condition = Condition("shard", "default", "1", "It stands still.", "dueline shards lag")
    note = Note([Alert(condition, 1_767_225_600_000_000, 1_767_225_600_000_000)])
    app = Dueline(STORE)
    app.store.commit(notes.PARTITION, [notes.put(KIND, "default", encode(note), b"v")])
    app.close()
    answer = shell("alerts", "--store", STORE, "-o", "json")
    assert answer.code == 6
    (alert,) = answer.data
    assert (alert["kind"], alert["evidence"]) == ("shard", "It stands still.")
    assert alert["since"].startswith("2026-01-01T00:00:00")


def test_what_cannot_be_watched_is_said(shell: Shell) -> None:
    for words in (("--target", "mail"), ("--target", "mail=soon"), ("--every", "1ms")):
        assert shell.app("pipeline", "watch", *words).code == 2
