"""Rules of tasks that pause themselves, broken."""

import pytest

from dueline.jobs import circuit_records, circuits
from dueline.worker.circuits import Circuits
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def a_probe_comes_at_any_time(patch: Patch) -> None:
    change_source(patch, circuits, "begin_probe", "now_us < circuit.probe_us", "False")


def every_job_is_a_probe(patch: Patch) -> None:
    change_source(patch, Circuits, "lets_probe", "circuit.probe != job.id.hex()", "False")


def a_probe_that_failed_stays_named(patch: Patch) -> None:
    change_source(patch, circuits, "end_probe", 'probe="", ', "")


def a_failure_closes_the_circuit(patch: Patch) -> None:
    change_source(patch, circuits, "end_probe", "is_closing=is_success", "is_closing=True")


def nobody_restores_a_pause(patch: Patch) -> None:
    change_source(patch, circuits, "restore", "circuit.opened_us and not is_paused", "False")


def an_operator_keeps_the_record(patch: Patch) -> None:
    patch.setattr(circuit_records, "forget", lambda _records, _queue, _tasks: None)
