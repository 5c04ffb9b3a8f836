"""Pages of batches."""

from dueline.web import dashboard
from tests.harness.quiet_log import quiet_log
from tests.harness.web import Shop, Visitor


@quiet_log()
def test_batches_are_shown_and_changed(shop: Shop, admin: Visitor) -> None:
    # W16
    app = shop.app

    @app.task(name="shop.measure", queue="measures")
    def measure(number: int) -> int:
        return 6 // number

    assert "No batches." in admin.text("/batches")
    batch = measure.map([1, 2, 3], name="measures <b>")
    listed = admin.text("/batches")
    assert "measures &lt;b&gt;" in listed
    assert "0/3" in listed
    assert "No batches match." in admin.text("/batches?name=none")
    path = f"/batches/{batch.job(0).id[:26]}"
    assert path in listed
    page = admin.text(path)
    assert "0 of 3 jobs ended" in page
    assert "Retry dead jobs" not in page
    admin.post(f"{path}/cancel")
    page = admin.text(path)
    assert "3 of 3 jobs ended" in page
    assert "Failed jobs" in page
    assert batch.job(1).id in page
    reader = Visitor(dashboard(app, role="reader"))
    assert "3 of 3 jobs ended" in reader.text(path)
    assert reader.post(f"{path}/retry").status_code == 403


def test_unknown_batches_are_not_found(admin: Visitor) -> None:
    for text in ("0" * 26, "x" * 26, "zz", "é" * 26):
        assert admin.get(f"/batches/{text}").status_code == 404
