"""A task that says what it really took of a rate; child processes import it."""

import os

from dueline import Context, Dueline

app = Dueline(os.environ.get("SPENDING_STORE", "memory://"))
app.rate("tokens", 10_000, per=60)
app.semaphore("gpu", capacity=2)


@app.task(limits={"tokens": 1000, "gpu": 2})
def ask(ctx: Context, tokens: int) -> None:
    ctx.spend("tokens", 1)
    ctx.spend("tokens", tokens)
