"""The same five on DBOS, as its examples are written: without their pages and their models.

`python -m examples.dbos_apps.originals`, in an environment with DBOS, is their worker.
`PORTS_FOLDER` names the folder of their files, `PORTS_STORE` another database than a file in it.
"""

import threading
from typing import Any

from dbos import DBOS, SQLAlchemyDatasource
from sqlalchemy import text

from examples.dbos_apps import world

DBOS(
    config={
        "name": "ports",
        "system_database_url": world.URL,
        "application_version": "0.1.0",
        "run_admin_server": False,
        "log_level": "ERROR",
    }
)
ds = SQLAlchemyDatasource.create(f"sqlite:///{world.FOLDER}/shop.db")
act = DBOS.step(name="act")(world.act)


def rows(statement: str, **values: object) -> Any:  # noqa: ANN401  (of its dialect)
    """Run a statement in the transaction of the step."""
    return ds.sql_session().execute(text(statement), values)


# --- the widget store -----------------------------------------------------------------------------


def create_order(customer: str) -> int:
    """Insert an order."""
    world.act(customer, "create")
    insert = "insert into orders (customer, remaining) values (:customer, :ticks) returning id"
    return int(rows(insert, customer=customer, ticks=world.TICKS).scalar_one())


def reserve(customer: str) -> bool:
    """Take a widget out of the stock."""
    world.act(customer, "reserve")
    taken = rows("update products set inventory = inventory - 1 where inventory > 0")
    return bool(taken.rowcount)


def release(customer: str) -> None:
    """Put a widget back."""
    world.act(customer, "release")
    rows("update products set inventory = inventory + 1")


def set_status(customer: str, order: int, status: str) -> None:
    """Set the status of an order."""
    world.act(customer, status)
    rows("update orders set status = :status where id = :order", status=status, order=order)


def move_on(customer: str, order: int, part: int) -> None:
    """Move an order on by one part of its way."""
    world.act(customer, f"part-{part}")
    rows("update orders set remaining = remaining - 1 where id = :order", order=order)
    rows("update orders set status = 'dispatched' where id = :order and remaining = 0", order=order)


@DBOS.workflow(name="dispatch")
def dispatch(customer: str, order: int) -> None:
    """Move an order on, part by part."""
    for part in range(world.TICKS):
        DBOS.sleep(0.2)
        ds.run_tx_step({"name": "move_on"}, move_on, customer, order, part)


@DBOS.workflow(name="checkout")
def checkout(customer: str) -> str:
    """Reserve a widget, wait for the payment, and start the dispatch."""
    order = ds.run_tx_step({"name": "create_order"}, create_order, customer)
    if not ds.run_tx_step({"name": "reserve"}, reserve, customer):
        ds.run_tx_step({"name": "set_status"}, set_status, customer, order, "cancelled")
        return "sold out"
    DBOS.set_event("order", order)
    if DBOS.recv("payment", timeout_seconds=3600) == "paid":
        ds.run_tx_step({"name": "set_status"}, set_status, customer, order, "paid")
        DBOS.start_workflow(dispatch, customer, order)
        return "paid"
    ds.run_tx_step({"name": "release"}, release, customer)
    ds.run_tx_step({"name": "set_status"}, set_status, customer, order, "cancelled")
    return "not paid"


# --- the agent inbox ------------------------------------------------------------------------------


@DBOS.workflow(name="agent")
def agent(name: str) -> str:
    """Work, ask, and work on if the answer is yes."""
    act(name, "plan")
    DBOS.set_event("status", "pending_approval")
    if DBOS.recv("answer", timeout_seconds=3600) != "confirm":
        DBOS.set_event("status", "denied")
        raise RuntimeError(name)
    DBOS.set_event("status", "working")
    act(name, "execute")
    return "successful"


# --- reliable refunds -----------------------------------------------------------------------------

price_of = DBOS.step(name="price_of")(world.price_of)


@DBOS.workflow(name="review")
def review(order: str) -> str:
    """Mail a reviewer, and wait a week for the answer."""
    act(order, "mail")
    if DBOS.recv("review", timeout_seconds=7 * 24 * 3600) == "approve":
        act(order, "refunded")
        return "approved"
    act(order, "rejected")
    return "rejected"


@DBOS.workflow(name="refund")
def refund(order: str) -> str:
    """Refund an order, or start its review; return the id of the review, or "refunded"."""
    if price_of(order) > 1000:
        act(order, "pending")
        return str(DBOS.start_workflow(review, order).workflow_id)
    act(order, "refunded")
    return "refunded"


# --- the document detective -----------------------------------------------------------------------


@DBOS.step()
def download(url: str) -> list[str]:
    """Read the pages of a document."""
    world.act(world.title(url), "download")
    return [f"{url}#{page}" for page in range(world.PAGES)]


@DBOS.step()
def index(page: str) -> None:
    """Insert a page into the index."""
    url, _, number = page.partition("#")
    world.act(world.title(url), f"page-{number}")


@DBOS.workflow(name="document")
def document(url: str) -> int:
    """Index a document; return its number of pages."""
    pages = download(url)
    for page in pages:
        index(page)
    return len(pages)


@DBOS.workflow(name="documents")
def documents(urls: list[str]) -> int:
    """Index documents; return the number of their pages."""
    handles = [DBOS.enqueue_workflow("documents", document, url) for url in urls]
    return sum(handle.get_result() for handle in handles)


# --- the Hacker News agent ------------------------------------------------------------------------


@DBOS.step()
def search(topic: str, number: int) -> int:
    """Search for stories; return how many there are."""
    world.act(topic, f"search-{number}")
    return world.stories_of(topic)


@DBOS.step()
def is_enough(topic: str, number: int) -> bool:
    """Ask the model whether to stop."""
    world.act(topic, f"judge-{number}")
    return number + 1 >= world.rounds_of(topic)


@DBOS.workflow(name="round")
def one_round(topic: str, number: int) -> int:
    """Search, read comments, and have a model evaluate them."""
    for story in range(search(topic, number)):
        act(topic, f"comments-{number}-{story}")
    return int(act(topic, f"evaluate-{number}"))


@DBOS.workflow(name="research")
def research(topic: str) -> list[int]:
    """Research a topic; return the findings."""
    findings: list[int] = []
    for number in range(3):
        DBOS.set_event("round", number)
        findings.append(one_round(topic, number))
        if is_enough(topic, number):
            break
        act(topic, f"follow-up-{number}")
    act(topic, "report")
    return findings


if __name__ == "__main__":
    DBOS.launch()
    DBOS.register_queue("apps")
    DBOS.register_queue("documents", concurrency=4)
    (world.FOLDER / "ready").touch()
    threading.Event().wait()
