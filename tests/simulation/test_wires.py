"""Whatever a store can be asked goes by the link."""

import inspect

from dueline.core.store import Store
from dueline.core.store_capabilities import SupportsPrefetch
from simulation.wires import READ_STEPS, READS, WRITE_STEPS, WRITES
from tests.harness.cluster import Node

BESIDE = {"describe", "close"}
"""What is said of a store costs no call."""

COMPOSED = {
    "closed", "put", "remove", "ats_us", "heads", "every", "put_rows", "marks_of", "step",
}  # fmt: skip
"""Made of other steps, or of none."""


def methods(kind: type) -> set[str]:
    return {
        name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")
    }


def test_every_call_of_a_store_goes_by_the_link() -> None:
    assert (methods(Store) | methods(SupportsPrefetch)) - BESIDE == READS | WRITES


def test_every_step_of_a_cluster_goes_by_the_link() -> None:
    assert methods(Node) - COMPOSED == READ_STEPS | WRITE_STEPS
