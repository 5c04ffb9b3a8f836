"""Rules of quotas, broken."""

from dataclasses import replace

import pytest

from dueline.limits import quota as quotas
from dueline.limits.admission import Admission, _Gate

Patch = pytest.MonkeyPatch


def what_is_taken_is_written_whatever_was_read(patch: Patch) -> None:
    write = quotas.write

    def over_anything(records, queue, quota, used, *, now_us, expect, ids):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        del expect
        _, version = quotas.read(records, queue, quota)
        return write(records, queue, quota, used, now_us=now_us, expect=version, ids=ids)

    patch.setattr(quotas, "write", over_anything)


def who_counts_reads_afterwards_how_many_were_taken(patch: Patch) -> None:
    count = Admission._count

    def late(self, queue, quota, used):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        counted = count(self, queue, quota, used)
        return counted._replace(through=quotas.read(self._store, queue, quota)[0].taken)

    patch.setattr(Admission, "_count", late)


def what_others_have_taken_ahead_is_forgotten(patch: Patch) -> None:
    after_taking = quotas.after_taking

    def forget(used, quota, count, now_us, *, more, until_us):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        after = after_taking(used, quota, count, now_us, more=more, until_us=until_us)
        return replace(after, lent=more)

    patch.setattr(quotas, "after_taking", forget)


def what_is_taken_ahead_is_used_whenever(patch: Patch) -> None:
    move_on = _Gate.move_on

    def keep(self: _Gate, now_us: int, until_us: int, grain_us: int) -> None:
        left = self.left
        move_on(self, now_us, until_us, grain_us)
        self.left = left

    patch.setattr(_Gate, "move_on", keep)
