"""Which job of its order key a job waits for."""

from dueline.core.call_options import order_of, waits_for_turn
from dueline.core.job_status import status_of
from dueline.jobs import orders
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.explanation import Condition, line


def wait_for_turn(subject: Subject) -> Condition | None:
    """Return that a job waits for its turn; None if it does not."""
    job = subject.job
    order = waits_for_turn(job)
    if order is None:
        return None
    turn = orders.judge(subject.engine, [job]).get(job.id)
    if turn is None and orders.waits_for_arrival(subject.engine, job):
        return Condition(
            "order",
            order.key,
            f"it waits for jobs of the order key {order.key!r} that `dueline move` has yet to "
            "bring from the old store, or that still run there",
            "work",
            unknown="when these arrive or end",
            facts={"order_key": order.key},
        )
    if turn is None:
        clause = (
            f"it comes first of the order key {order.key!r}; it continues when a worker releases "
            "it, or when it checks this itself"
        )
        is_parked = orders.is_parked(job)
        return Condition("order", order.key, clause, "time", job.at_us) if is_parked else None
    first = turn.first.id.hex()
    if turn.is_dead:
        because = f" because of {line(turn.error)}" if turn.error else ""
        command = f"dueline dead retry {first}"
        order_of_first = order_of(turn.first)
        is_own = order_of_first is not None and order_of_first.skips is not None
        said = "its call" if is_own else "its queue"
        return Condition(
            "held",
            first,
            f"it is held by the job {first}, the first of the order key {order.key!r}, which is "
            f"dead{because}, until that is retried (`{command}`) or deleted, as {said} says",
            "operator",
            command=command,
            facts={
                "awaited": first,
                "error": turn.error,
                "order_key": order.key,
                "blocked_by": said.removeprefix("its "),
            },
        )
    command = f"dueline jobs explain {first}"
    return Condition(
        "order",
        order.key,
        f"it waits for its turn: the job {first} is the first of the order key {order.key!r} and "
        f"is {status_of(turn.first, subject.now_us)} (`{command}`)",
        "work",
        command=command,
        unknown="when those before it end",
        facts={"awaited": first, "order_key": order.key},
    )
