"""The document detective of DBOS: many documents are read, and each of their pages indexed."""

from dueline import DurableContext
from examples.dbos_apps import world
from examples.dbos_apps.application import app


def download(url: str) -> list[str]:
    """Read the pages of a document."""
    world.act(world.title(url), "download")
    return [f"{url}#{page}" for page in range(world.PAGES)]


def index(page: str) -> None:
    """Insert a page into the index."""
    url, _, number = page.partition("#")
    world.act(world.title(url), f"page-{number}")


@app.durable(name="document")
def document(ctx: DurableContext, url: str) -> int:
    """Index a document; return its number of pages."""
    pages = ctx.step(download, url)
    for page in pages:
        ctx.step(index, page)
    return len(pages)


@app.durable(name="documents")
def documents(ctx: DurableContext, urls: list[str]) -> int:
    """Index documents, four at a time; return the number of their pages."""
    return sum(ctx.gather([document.call(url) for url in urls], limit=4))
