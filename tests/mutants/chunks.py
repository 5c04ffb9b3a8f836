"""Rules of partial results, broken."""

import pytest

from dueline.api.chunks import ChunkReader
from dueline.jobs import chunk_records
from dueline.worker.chunk_writer import ChunkWriter
from dueline.worker.progress_reports import ProgressReports
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def outcomes_are_stored_before_chunks(patch: Patch) -> None:
    change_source(patch, ProgressReports, "write", "self._chunks.write(ended=only or ())", "pass")


def a_reader_stops_when_it_sees_the_end(patch: Patch) -> None:
    last = "self._read()  # all are stored before the outcome (rule T1)"
    change_source(patch, ChunkReader, "poll", last, "[]")


def a_repeat_has_later_chunks(patch: Patch) -> None:
    change_source(patch, ChunkWriter, "_write", "if line.sealed is None:", "if line.waiting:")


def keys_name_the_first_chunk(patch: Patch) -> None:
    change_source(patch, chunk_records, "written", "last.number", "first.number")


def earlier_claims_are_given_too(patch: Patch) -> None:
    change_source(patch, chunk_records, "read", "chunks.clear()", "pass")
