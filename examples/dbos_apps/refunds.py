"""The reliable refunds of DBOS: cheap orders are refunded at once, dear ones after a review."""

from datetime import timedelta

from dueline import DurableContext
from examples.dbos_apps import world
from examples.dbos_apps.application import app

COST_MAX = 1000


@app.durable(name="review")
def review(ctx: DurableContext, order: str) -> str:
    """Mail a reviewer, and wait a week for the answer."""
    ctx.step(world.act, order, "mail", name="mail")
    answer = ctx.wait_signal("review", timeout=timedelta(days=7), default="reject", type=str)
    if answer == "approve":
        ctx.step(world.act, order, "refunded", name="set_status")
        return "approved"
    ctx.step(world.act, order, "rejected", name="set_status")
    return "rejected"


@app.durable(name="refund")
def refund(ctx: DurableContext, order: str) -> str:
    """Refund an order, or start its review; return the id of the review, or "refunded"."""
    if ctx.step(world.price_of, order) > COST_MAX:
        ctx.step(world.act, order, "pending", name="set_status")
        return str(ctx.call(review, order, wait=False).job_id.hex())
    ctx.step(world.act, order, "refunded", name="set_status")
    return "refunded"
