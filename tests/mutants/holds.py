"""Rules of what a worker holds, broken."""

import pytest

from dueline.worker.buffer import Buffer
from dueline.worker.controls import Controls

Patch = pytest.MonkeyPatch


def what_waits_behind_a_slow_job_is_kept(patch: Patch) -> None:
    patch.setattr(Buffer, "take_overdue", lambda _: [])


def what_was_released_is_claimed_again_at_once(patch: Patch) -> None:
    take_overdue = Buffer.take_overdue

    def forget(self: Buffer) -> list[object]:
        taken: list[object] = [*take_overdue(self)]
        self.ended()
        return taken

    patch.setattr(Buffer, "take_overdue", forget)


def claims_last_for_ever(patch: Patch) -> None:
    patch.setattr(Controls, "has_lapsed", lambda *_: False)
