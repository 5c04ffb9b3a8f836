"""Rules of permits, broken."""

from collections.abc import Sequence

import pytest

from dueline.core.ids import Ids
from dueline.core.job import Claim, Job
from dueline.core.store import Records
from dueline.limits import rate, semaphore
from dueline.limits.permits import HeldPermits
from dueline.limits.rate import Meter, Rate
from dueline.limits.rate_meters import RateMeters
from dueline.limits.semaphore import PermitRequest, Permits
from dueline.worker.settler import Settler
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def permits_of_others_do_not_count(patch: Patch) -> None:
    def spare(
        _permits: Permits,
        capacity: int,
        _worker: str,
        _wish: PermitRequest,
        _now_us: int,
        **_: bool,
    ) -> int:
        return capacity

    patch.setattr(semaphore, "spare", spare)


def a_number_is_written_whatever_was_read(patch: Patch) -> None:
    write_if = semaphore.write

    def write(records: Records, name: str, permits: Permits, *, expect: bytes, ids: Ids) -> bool:
        del expect
        _, version = semaphore.read(records, name)
        return write_if(records, name, permits, expect=version, ids=ids)

    patch.setattr(semaphore, "write", write)


def what_cannot_be_used_is_kept(patch: Patch) -> None:
    patch.setattr(HeldPermits, "settle", lambda _self, _held: None)


def nobody_has_a_turn(patch: Patch) -> None:
    def before(*_: object) -> Sequence[str]:
        return []

    patch.setattr(semaphore, "before", before)


def a_claim_outlasts_its_permits(patch: Patch) -> None:
    ends = HeldPermits.ends_us

    def ends_us(self: HeldPermits, jobs: Sequence[Job]) -> dict[Claim, int]:
        return {claim: until_us + 60_000_000 for claim, until_us in ends(self, jobs).items()}

    patch.setattr(HeldPermits, "ends_us", ends_us)


def an_extension_outlasts_its_permits(patch: Patch) -> None:
    change_source(patch, Settler, "extend", "min(until_us,", "max(until_us,")


def who_lost_a_permit_goes_on(patch: Patch) -> None:
    keep = HeldPermits.keep

    def keep_all(self: HeldPermits, held: Sequence[Job]) -> list[Job]:
        keep(self, held)
        return []

    patch.setattr(HeldPermits, "keep", keep_all)


def a_lapsed_permit_is_held_again_though_another_has_it(patch: Patch) -> None:
    def renew(self: HeldPermits, name: str, lease_us: int) -> int:
        seen = self._see(name)
        self._hold(name, seen, seen.permits, self._stored[name], lease_us, always=True)
        return self._stored[name]

    patch.setattr(HeldPermits, "_renew", renew)


def a_meter_is_written_whatever_was_read(patch: Patch) -> None:
    write_if = rate.write

    def write(
        records: Records, name: str, meter: Meter, one: Rate, *, expect: bytes, ids: Ids
    ) -> bool:
        del expect
        _, version = rate.read(records, name)
        return write_if(records, name, meter, one, expect=version, ids=ids)

    patch.setattr(rate, "write", write)


def what_a_claim_did_not_bring_is_not_given_back(patch: Patch) -> None:
    patch.setattr(RateMeters, "unused", lambda _self, _name, _count: None)


def what_is_given_back_is_what_was_taken_last(patch: Patch) -> None:
    returned = rate.after_returning

    def back(meter: Meter, one: Rate, count: int, _taken_us: int, now_us: int) -> Meter:
        last_us = max([us for us, _ in meter.taken], default=now_us)
        return returned(meter, one, count, last_us, last_us)

    patch.setattr(rate, "after_returning", back)


def nobody_closes_a_limit(patch: Patch) -> None:
    patch.setattr(Settler, "_throttle", lambda _self, _ended: None)


def who_has_no_job_left_keeps_its_place(patch: Patch) -> None:
    patch.setattr(HeldPermits, "leave_line", lambda _self, _line: None)
