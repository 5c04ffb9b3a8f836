"""Run all models and their mutants, and report the results.

`python -m models` runs everything, or the part that MODELS_PART names, such as 0/4;
`python -m models marks "no check"` prints the shortest failing sequence of one mutant.
"""

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple
from zlib import crc32

from models import (
    appends,
    batch_ends,
    batch_slices,
    cancels,
    carried,
    chunks,
    circuits,
    claims,
    dependencies,
    durable_calls,
    durable_ends,
    durable_generations,
    durable_log,
    durable_waits,
    flows,
    forward,
    freezes,
    groups,
    inserts,
    leases,
    marks,
    memory,
    move,
    moving_keys,
    occurrences,
    orders,
    permits,
    requeues,
    sections,
    signatures,
    stretches,
    tasks,
    topics,
    trials,
    turns,
)
from models.explore import Finding, Model, explore

# mypy cannot express that each model has its own type of state.
Models = dict[str, Model]  # type: ignore[type-arg]

RIGHT: dict[str, Models] = {
    "marks": {**marks.MODELS},
    "forward": {**forward.MODELS},
    "claims": {**claims.MODELS},
    "carried": {**carried.MODELS},
    "stretches": {**stretches.MODELS},
    "memory": {**memory.MODELS},
    "inserts": {**inserts.MODELS},
    "tasks": {**tasks.MODELS},
    "signatures": {**signatures.MODELS},
    "sections": {**sections.MODELS},
    "circuits": {**circuits.MODELS},
    "cancels": {**cancels.MODELS},
    "move": {**move.MODELS},
    "requeues": {**requeues.MODELS},
    "moving_keys": {**moving_keys.MODELS},
    "freezes": {**freezes.MODELS},
    "leases": {**leases.MODELS},
    "permits": {**permits.MODELS},
    "turns": {**turns.MODELS},
    "flows": {**flows.MODELS},
    "groups": {**groups.MODELS},
    "dependencies": {**dependencies.MODELS},
    "orders": {**orders.MODELS},
    "batch_slices": {**batch_slices.MODELS},
    "batch_ends": {**batch_ends.MODELS},
    "chunks": {**chunks.MODELS},
    "durable_log": {**durable_log.MODELS},
    "durable_waits": {**durable_waits.MODELS},
    "durable_calls": {**durable_calls.MODELS},
    "durable_ends": {**durable_ends.MODELS},
    "durable_generations": {**durable_generations.MODELS},
    "topics": {**topics.MODELS},
    "trials": {**trials.MODELS},
    "occurrences": {**occurrences.MODELS},
    "appends": {**appends.MODELS},
}
WRONG: dict[str, Models] = {
    "marks": {**marks.MUTANTS},
    "forward": {**forward.MUTANTS},
    "claims": {**claims.MUTANTS},
    "carried": {**carried.MUTANTS},
    "stretches": {**stretches.MUTANTS},
    "memory": {**memory.MUTANTS},
    "inserts": {**inserts.MUTANTS},
    "tasks": {**tasks.MUTANTS},
    "signatures": {**signatures.MUTANTS},
    "sections": {**sections.MUTANTS},
    "circuits": {**circuits.MUTANTS},
    "cancels": {**cancels.MUTANTS},
    "move": {**move.MUTANTS},
    "requeues": {**requeues.MUTANTS},
    "moving_keys": {**moving_keys.MUTANTS},
    "freezes": {**freezes.MUTANTS},
    "leases": {**leases.MUTANTS},
    "permits": {**permits.MUTANTS},
    "turns": {**turns.MUTANTS},
    "flows": {**flows.MUTANTS},
    "groups": {**groups.MUTANTS},
    "dependencies": {**dependencies.MUTANTS},
    "orders": {**orders.MUTANTS},
    "batch_slices": {**batch_slices.MUTANTS},
    "batch_ends": {**batch_ends.MUTANTS},
    "chunks": {**chunks.MUTANTS},
    "durable_log": {**durable_log.MUTANTS},
    "durable_waits": {**durable_waits.MUTANTS},
    "durable_calls": {**durable_calls.MUTANTS},
    "durable_ends": {**durable_ends.MUTANTS},
    "durable_generations": {**durable_generations.MUTANTS},
    "topics": {**topics.MUTANTS},
    "trials": {**trials.MUTANTS},
    "occurrences": {**occurrences.MUTANTS},
    "appends": {**appends.MUTANTS},
}


class Task(NamedTuple):
    """A model, or one of its mutants, by name."""

    model: str
    name: str
    is_mutant: bool


def run(task: Task) -> Finding:
    """Explore one model; each runs in a separate process."""
    group = WRONG if task.is_mutant else RIGHT
    return explore(group[task.model][task.name])


def main() -> int:
    """Run all; return 1 if a model fails or a mutant passes."""
    began_s = time.perf_counter()
    tasks = [Task(model, name, is_mutant=False) for model in RIGHT for name in RIGHT[model]]
    tasks += [Task(model, name, is_mutant=True) for model in WRONG for name in WRONG[model]]
    number, parts = map(int, os.environ.get("MODELS_PART", "0/1").split("/"))
    tasks = [task for task in tasks if crc32(repr(task).encode()) % parts == number]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        findings = dict(zip(tasks, pool.map(run, tasks), strict=True))
    print(f"{'model':<20}{'':<38}{'states':>8}  {'verdict'}")
    for task, finding in findings.items():
        if not task.is_mutant:
            verdict = finding.fault or "passes"
            print(f"{task.model:<20}{task.name:<38}{finding.states:>8}  {verdict}")
    print(f"\n{'model':<20}{'mutant':<50}{'steps':>6}  {'what it breaks'}")
    for task, finding in findings.items():
        if task.is_mutant:
            broken = finding.fault or "NOTHING: the rule is not needed, or not modeled"
            print(f"{task.model:<20}{task.name:<50}{len(finding.story):>6}  {broken}")
    bad = [task for task, finding in findings.items() if bool(finding.fault) != task.is_mutant]
    mutants = sum(task.is_mutant for task in tasks)
    protocols = len({task.model for task in tasks})
    states = sum(finding.states for finding in findings.values())
    took_s = time.perf_counter() - began_s
    print(
        f"\n{len(tasks) - mutants} models of {protocols} protocols, {mutants} mutants,"
        f" {states} states in {took_s:.0f} s: {len(bad)} with the wrong result"
    )
    return 1 if bad else 0


def show(model: str, name: str) -> int:
    """Print the shortest failing sequence of one mutant."""
    finding = explore(WRONG[model][name])
    for number, words in enumerate(finding.story, 1):
        print(f"{number:>3}  {words}")
    print(f"     {finding.fault or 'no fault'}, after {finding.states} states")
    return 0


if __name__ == "__main__":
    sys.exit(show(*sys.argv[1:]) if sys.argv[1:] else main())
