"""Leases in a store that `dueline move` takes to another one."""

from pathlib import Path

import pytest

from dueline import Dueline, StoreMoved
from dueline.admin.move import Mover
from tests.harness.clocks import HandClock

NAMES = ("old", "new")


def test_epochs_of_leases_continue(tmp_path: Path) -> None:
    # rules L1 and X6
    clock = HandClock()
    apps = [Dueline(f"sqlite:///{tmp_path / name}.db", clock=clock) for name in NAMES]
    epochs = []
    for way in (1, -1, 1):
        source, target = apps[::way]
        for _ in range(2):
            with source.lease("leader") as lease:
                epochs.append(lease.epoch)
        movers = [Dueline(side.url, clock=clock) for side in (source, target)]
        old, new = (mover.queues for mover in movers)
        names = NAMES if way > 0 else NAMES[::-1]
        Mover(old, new, names, clock=clock, report=lambda *_: None).run()
        with pytest.raises(StoreMoved), source.lease("leader"):
            pass
        for app in movers:
            app.close()
    assert epochs == sorted(set(epochs))
    for app in apps:
        app.close()
