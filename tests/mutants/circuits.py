"""Rules of tasks that pause themselves, broken."""

import pytest

from dueline.jobs import circuit_records, circuits, pauses
from dueline.worker.circuits import Circuits
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def a_probe_comes_at_any_time(patch: Patch) -> None:
    change_source(
        patch, circuits, "begin_probe", "engine.time.earliest_us() < circuit.probe_us", "False"
    )


def every_job_is_a_probe(patch: Patch) -> None:
    change_source(patch, circuits, "start_probe", "circuit.probe != job.id.hex()", "False")


def a_job_probes_again(patch: Patch) -> None:
    change_source(patch, circuits, "_with_fence", 'f"{job.id.hex()}/{job.fence}"', "job.id.hex()")


def nobody_awaits_the_probe(patch: Patch) -> None:
    patch.setattr(circuits, "_is_probed", lambda _engine, _circuit: False)


def a_failure_closes_the_circuit(patch: Patch) -> None:
    change_source(patch, circuits, "end_probe", "is_closing=is_success", "is_closing=True")


def nobody_restores_a_pause(patch: Patch) -> None:
    patch.setattr(pauses, "hold", lambda _engine, _queue, _task: True)


def nobody_ends_a_pause_without_a_circuit(patch: Patch) -> None:
    change_source(patch, circuits, "restore", "or (is_tripped and not circuit.is_open)", "or False")


def the_settings_do_not_say_who_paused(patch: Patch) -> None:
    change_source(patch, pauses, "hold", "return task in settings.tripped_tasks", "return True")


def an_operator_keeps_the_record(patch: Patch) -> None:
    patch.setattr(circuit_records, "forget", lambda _records, _queue, _tasks: None)


def each_job_of_a_dead_process_counts(patch: Patch) -> None:
    change_source(patch, Circuits, "_crashed", "job.alone or is_once", "True")
