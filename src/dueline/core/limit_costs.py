"""How many units jobs take from their limits.

A limit of a call may end in COST_MARK and a number of units. The lane of its job has the name and
the mark, and the options of the job have the number: jobs of one lane may take different numbers.
"""

import inspect
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from dueline.core.call_options import CallOptions, read_options
from dueline.core.errors import BadInput, StoreCorrupt
from dueline.core.job import Job
from dueline.core.lane import COST_MARK, has_costs, limits_of
from dueline.core.user_code import name_of, text_of

UNITS_MAX: Final = 1_000_000_000

NO_COSTS: Final[Mapping[str, int]] = {}

Cost = int | str | Callable[..., int]
"""What a job takes of a limit: a number of units, the name of the argument that says it, or a
function of arguments, which it names by its parameters.
"""


class CostedLimit(str):
    """A limit of a task, with its cost."""

    __slots__ = ("cost",)
    cost: Cost

    @property
    def is_computed(self) -> bool:
        """Whether calls may have different costs."""
        return not isinstance(self.cost, int)


def costed(limit: str, cost: object, names: Collection[str], task: str) -> str:
    """Return a limit with its cost, as a caller passes it.

    Args:
        limit: The limit.
        cost: See `Cost`.
        names: The arguments of the task.
        task: The name of the task, for errors.

    Raises:
        BadInput: The cost is invalid.
    """
    if isinstance(cost, str):
        _check_names((cost,), limit, names, task)
    elif callable(cost):
        _check_names(_parameters(cost, limit), limit, names, task)
    else:
        cost = checked_units(cost, limit)
    if cost == 1:
        return limit
    made = CostedLimit(limit)
    made.cost = cost
    return made


def _parameters(cost: Callable[..., object], limit: str) -> Collection[str]:
    try:
        return inspect.signature(cost).parameters
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"The parameters of the cost of the limit {limit!r:.80} cannot be read.",
            hint="Use a lambda, as in lambda prompt: len(prompt).",
        ) from error


def _check_names(named: Collection[str], limit: str, names: Collection[str], task: str) -> None:
    for name in named:
        if name not in names:
            raise BadInput(
                f"The cost of the limit {limit!r:.80} names {name!r:.80}, which {task} does not "
                "take.",
                hint=f"Its arguments are {', '.join(sorted(names)) or 'none'}.",
            )


def checked_units(units: object, limit: str, *, least: int = 1) -> int:
    """Return a number of units, or raise BadInput."""
    try:
        number = -1 if isinstance(units, bool) else operator.index(units)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not least <= number <= UNITS_MAX:
        raise BadInput(
            f"The cost of the limit {limit!r:.80} must be an integer from {least} to {UNITS_MAX} "
            f"(got {text_of(units):.80}).",
            hint="Use whole units, as in max(1, round(tokens)).",
        )
    return number


def with_units(name: str, cost: Cost, arguments: Mapping[str, object]) -> str:
    """Return the limit of one call, with the number of units that it takes.

    Args:
        name: The limit of the call.
        cost: The cost.
        arguments: The arguments of the call, by name.

    Raises:
        BadInput: The number is invalid, or the function that computes it raises an error.
    """
    units: object = cost
    if isinstance(cost, str):
        units = arguments[cost]
    elif callable(cost):
        given = {parameter: arguments[parameter] for parameter in _parameters(cost, name)}
        try:
            units = cost(**given)
        except Exception as error:
            raise BadInput(
                f"The cost of the limit {name!r:.80} raised {name_of(error)}: "
                f"{text_of(error):.200}.",
                hint="Correct the function that computes it.",
            ) from error
    return f"{name}{COST_MARK}{checked_units(units, name)}"


def costs_in(limits: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return the names and units of those limits of a call that have a number of units."""
    parts = [limit.partition(COST_MARK) for limit in sorted(set(limits)) if COST_MARK in limit]
    return tuple((name, int(units)) for name, _, units in parts)


def options_with_costs(options: CallOptions, limits: Sequence[str]) -> CallOptions:
    """Return the options of a job with these limits."""
    costs = costs_in(limits)
    return options.changed(costs=costs) if costs else options


def opts_with_costs(opts: bytes, limits: Sequence[str]) -> bytes:
    """Return the cell `opts` of a job with these limits."""
    if not any(COST_MARK in limit for limit in limits):
        return opts
    return options_with_costs(read_options(opts), limits).to_bytes()


def costs_of(job: Job) -> Mapping[str, int]:
    """Return the units that a job takes, by limit; it takes one unit of its other limits.

    Nothing is returned if its options cannot be read: the worker that runs it reports that.
    """
    if not has_costs(job.lane):
        return NO_COSTS
    try:
        return dict(read_options(job.opts).costs)
    except StoreCorrupt:
        return NO_COSTS


def limits_with_costs(job: Job) -> tuple[str, ...]:
    """Return the limits of a job as those of a call, with its numbers of units."""
    costs, names = costs_of(job), limits_of(job.lane)
    return tuple(f"{name}{COST_MARK}{costs[name]}" if name in costs else name for name in names)
