"""Rules of exports, broken."""

import pytest

from dueline.admin.exports import exporter, files
from dueline.admin.exports.exporter import Freeze
from dueline.admin.exports.files import Reader
from dueline.admin.exports.importer import Importer
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def a_store_is_not_frozen(patch: Patch) -> None:
    change_source(patch, Freeze, "_put", "engine.store.commit(features.PARTITION, (put,))", "put")


def claims_are_not_waited_for(patch: Patch) -> None:
    patch.setattr(exporter, "_held", lambda _engine, _rows: [])


def a_freeze_lasts_for_ever(patch: Patch) -> None:
    change_source(patch, Freeze, "_put", "self._version, expires_us)", "self._version)")


def parts_are_not_checked(patch: Patch) -> None:
    change_source(patch, Reader, "_read", "!= part.sha256", "== ''")
    patch.setattr(files.Reader, "check", lambda _: None)


def the_new_store_is_open_meanwhile(patch: Patch) -> None:
    change_source(
        patch, Importer, "_begin", 'Put(self._name, self._engine.ids.token(), b"{}"),',
        'Put("moves", self._engine.ids.token(), b"{}"),',
    )  # fmt: skip


def watermarks_are_raised_with_their_part(patch: Patch) -> None:
    change_source(
        patch, Importer, "run",
        "self._store_state(replace(state, parts=number + 1))",
        "[self._store.close_until(line.stream, line.shard, at_us=line.at_us)"
        " for line in watermarks]; self._store_state(replace(state, parts=number + 1))",
    )  # fmt: skip


def the_store_is_not_compared(patch: Patch) -> None:
    patch.setattr(Importer, "_compare", lambda _: None)
