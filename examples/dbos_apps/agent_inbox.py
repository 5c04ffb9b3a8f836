"""The agent inbox of DBOS: agents work until a person confirms or denies what they propose."""

from datetime import timedelta

from dueline import DurableContext, Retry
from examples.dbos_apps import world
from examples.dbos_apps.application import app


class DeniedError(Exception):
    """The person denied, or did not answer in time."""


@app.durable(name="agent", retry=Retry(attempts=1))
def agent(ctx: DurableContext, name: str) -> str:
    """Work, ask, and work on if the answer is yes."""
    ctx.step(world.act, name, "plan")
    ctx.state({"question": f"Should {name} proceed?", "status": "pending approval"})
    answer = ctx.wait_signal("answer", timeout=timedelta(hours=1), default="deny", type=str)
    if answer == "deny":
        ctx.state({"status": "denied"})
        raise DeniedError(name)
    ctx.state({"status": "working"})
    ctx.step(world.act, name, "execute")
    return "successful"
