"""`dueline alerts`: list the alerts that are raised."""

import typer

from dueline.cli.errors import Exit
from dueline.cli.output import Entry, Instant, Output, note
from dueline.cli.session import session_of
from dueline.foresight.alert_monitor import raised_alerts

COLUMNS = ("kind", "queue", "subject", "since", "evidence", "command")


def alerts(context: typer.Context) -> int:
    """List the alerts that are raised now.

    The maintenance leader raises them: for shards that stand still, tenants that starve, tasks
    whose failures jump, dead letters that grow, paused queues whose jobs wait, applications that
    cannot be imported, and durable functions that no worker can continue. With a target
    (app.alerts), also for the error budget, and for a queue that will miss its target within the
    hour. They end by themselves. Exits 6 if an alert is raised.

    Example: dueline alerts
    """
    with session_of(context).engine() as engine:
        raised = raised_alerts(engine)
        shown: list[Entry] = [
            {
                "kind": alert.condition.kind,
                "queue": alert.condition.queue,
                "subject": alert.condition.subject,
                "since": Instant(alert.since_us),
                "evidence": alert.condition.sentence,
                "command": alert.condition.command,
            }
            for alert in raised
        ]
        Output.of(context, engine).entries(shown, COLUMNS, count=len(shown))
    if not shown:
        note("No alert is raised.")
    return Exit.CHECK if shown else Exit.DONE
