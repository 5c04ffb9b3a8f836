"""Lives are the same each time, and end well."""

import os
import subprocess
import sys

import pytest

from simulation.__main__ import regressions
from simulation.faults import KINDS, Fault
from simulation.life import live
from simulation.scenario import scenario_of
from simulation.tape import Tape

SEEDS = range(40)
ALIKE = 8
"""Lives led twice, one of them a stream'; one place that follows hashes shows in most of them."""


def digests(hash_seed: str) -> str:
    program = (
        f"from simulation.life import live\nfor seed in range({ALIKE}): print(live(seed).digest)"
    )
    led = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return led.stdout


@pytest.mark.timeout(600)  # in processes that coverage slows down
def test_a_seed_is_the_same_life_whatever_hashes_are() -> None:
    first = digests("1")
    assert first.count("\n") == ALIKE
    assert digests("2") == first


def test_a_tape_leads_the_life_that_it_was_taken_from() -> None:
    life = live(7)
    assert live(7, life.tape).digest == life.digest
    assert live(8).digest != life.digest


def test_a_tape_of_zeros_is_a_life_without_accidents() -> None:
    for seed in (0, 1):
        life = live(seed, [])
        assert life.accidents == []
        assert life.faults == {}
        assert life.counts["done"] == life.counts["attempted"] > 0


@pytest.mark.parametrize("seed", regressions())
def test_what_once_failed_ends_well(seed: int) -> None:
    assert live(seed).faults == {}


def test_both_kinds_of_store_and_all_faults_come_up() -> None:
    kinds = {scenario_of(seed, Tape(seed)).is_stepped for seed in SEEDS}
    assert kinds == {True, False}
    drawn = {fault for seed in SEEDS for fault in scenario_of(seed, Tape(seed)).faults}
    assert drawn == set(KINDS)
    assert set(Fault) - drawn == {Fault.OVERTAKES}
