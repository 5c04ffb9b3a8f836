"""The widget store of DBOS: an order is reserved, paid and dispatched, or cancelled.

Why: a step and the rows that it writes are two commits here, where `run_tx_step` of DBOS is one.
So each row has the step's key, and a step that runs again finds it.
"""

from dueline import DurableContext
from examples.dbos_apps import world
from examples.dbos_apps.application import app


@app.durable(name="dispatch")
def dispatch(ctx: DurableContext, customer: str, order: int) -> None:
    """Move an order on, part by part."""
    for part in range(world.TICKS):
        ctx.sleep(0.2)
        ctx.step(world.move_on, customer, order, part, ctx.key)


@app.durable(name="checkout")
def checkout(ctx: DurableContext, customer: str) -> str:
    """Reserve a widget, wait for the payment, and start the dispatch."""
    order = ctx.step(world.create_order, customer, ctx.key)
    reservation = ctx.key
    if not ctx.step(world.reserve, customer, reservation):
        ctx.step(world.set_status, customer, order, "cancelled")
        return "sold out"
    ctx.state({"order": order, "status": "waits for payment"})  # the page reads it
    if ctx.wait_signal("payment", type=str) == "paid":
        ctx.step(world.set_status, customer, order, "paid")
        ctx.call(dispatch, customer, order, wait=False)
        return "paid"
    ctx.step(world.release, customer, reservation)
    ctx.step(world.set_status, customer, order, "cancelled")
    return "not paid"
