"""Events that kill their consumer's process, in processes that are killed (R4)."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.coordination.leases import grants
from dueline.core.codec import encode
from dueline.core.store import Put
from dueline.streams import groups
from tests.harness import deadly_consumer

ROOT = Path(__file__).parents[3]
WAIT_S = 60


def consume(url: str) -> "subprocess.CompletedProcess[str]":
    """Run a consumer to its end."""
    return subprocess.run(
        [sys.executable, deadly_consumer.__file__, url],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def let_leases_lapse(app: Dueline) -> None:
    """Let the leases and beats of a dead member be long ago, so that no test waits for that."""
    store, scope = app.queues.engine.store, groups.leases_at("events", "group")
    for name, grant in grants(store, scope).items():
        lapsed = encode(replace(grant, until_us=1))
        assert store.commit(scope, (Put(name, app.queues.engine.ids.token(), lapsed),))
    for member in groups.members(store, "events", "group"):
        groups.leave(store, "events", "group", member.name)


@pytest.mark.long
@pytest.mark.sqlite
def test_an_event_that_kills_its_process_is_dead_lettered(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    events = app.stream("events", shards=1)
    events.append_many([("one", "a"), ("deadly", "b"), ("two", "a"), ("three", "b")])
    for _ in range(5):  # unknown, in a batch, and three times alone
        assert consume(url).returncode == -signal.SIGKILL
        let_leases_lapse(app)
    ended = consume(url)
    assert (ended.returncode, ended.stdout.split()) == (0, ["two"])
    assert [event.value for event in events.parked("group")] == ["deadly", "three"]
    app.close()
