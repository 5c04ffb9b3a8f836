"""The dashboard over any store."""

from dueline.web import dashboard
from tests.harness.web import Shop, Visitor


def every_page_shows_and_steers_a_store(url: str) -> None:
    """Open each page of a shop, and make the changes that pages offer."""
    shop = Shop(url)
    try:
        admin = Visitor(dashboard(shop.app, role="admin"))
        for path in shop.paths():
            assert "<script>alert" not in admin.text(path)
        assert shop.scheduled in admin.text("/jobs?q=tenant:acme+priority>3")
        assert admin.get("/series.json").json()["failed"][-1] is None  # this step is not over
        done = admin.post("/jobs/change", {"q": "state:dead task:shop.send", "what": "retry"})
        assert done.headers["location"].endswith("notice=retried&n=2")
        admin.post("/queues/mail/pause")
        assert "paused" in admin.text("/queues")
        audit = admin.text("/audit")
        assert audit.index("pause queue") < audit.index("retry all")
    finally:
        shop.app.close()
