"""The Hacker News agent of DBOS: rounds of research until a model says that it is enough."""

from dueline import DurableContext
from examples.dbos_apps import world
from examples.dbos_apps.application import app

ROUNDS_MAX = 3


def search(topic: str, number: int) -> int:
    """Search for stories; return how many there are."""
    world.act(topic, f"search-{number}")
    return world.stories_of(topic)


def is_enough(topic: str, number: int) -> bool:
    """Ask the model whether to stop."""
    world.act(topic, f"judge-{number}")
    return number + 1 >= world.rounds_of(topic)


@app.durable(name="round")
def one_round(ctx: DurableContext, topic: str, number: int) -> int:
    """Search, read comments, and have a model evaluate them."""
    for story in range(ctx.step(search, topic, number)):
        ctx.step(world.act, topic, f"comments-{number}-{story}", name="comments")
    return int(ctx.step(world.act, topic, f"evaluate-{number}", name="evaluate"))


@app.durable(name="research")
def research(ctx: DurableContext, topic: str) -> list[int]:
    """Research a topic; return the findings."""
    findings: list[int] = []
    for number in range(ROUNDS_MAX):
        ctx.state({"topic": topic, "round": number})
        findings.append(ctx.call(one_round, topic, number))
        if ctx.step(is_enough, topic, number):
            break
        ctx.step(world.act, topic, f"follow-up-{number}", name="follow_up")
    ctx.step(world.act, topic, "report", name="report")
    return findings
