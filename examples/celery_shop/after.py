"""The shop on dueline, in Django's own PostgreSQL database."""

from datetime import timedelta

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse

from dueline import Context, Dueline, Retry, chord
from examples.celery_shop.project import PAUSE_S, Item, Order, bank, carrier, send

app = Dueline()  # DUELINE_STORE: no broker, no result backend, no beat
app.rate("supplier", 10, per=1)


@app.task(name="shop.charge_card", retry=Retry(attempts=6, on=(ConnectionError,), base=1, cap=600))
def charge_card(ctx: Context, order_id: int) -> str:
    """Charge an order; then reserve its items, pack it, and send the receipt."""
    receipt = bank.call(order_id)
    Order.objects.filter(pk=order_id).update(is_paid=True)
    skus = Item.objects.filter(order=order_id).values_list("sku", flat=True)
    app.start(chord([reserve_item.step(sku) for sku in skus], pack_order.step(order_id)))
    send_receipt.using(priority=9).enqueue(order_id, receipt)  # larger runs first
    return f"{receipt}, attempt {ctx.attempt}"


@app.task(name="shop.reserve_item", retry=Retry.fixed(30, attempts=4, on=(OSError,)))
def reserve_item(sku: str) -> str:
    """Reserve one item in the warehouse."""
    return sku.upper()


@app.task(name="shop.pack_order", retry=Retry(attempts=1))
def pack_order(reserved: list[str], order_id: int) -> None:
    """Pack an order when all of its items are reserved."""
    Order.objects.filter(pk=order_id).update(packed=",".join(reserved))
    track_parcel.enqueue(order_id)


@app.task(name="shop.send_receipt", retry=Retry(attempts=1))
def send_receipt(order_id: int, receipt: str) -> None:
    """Send the receipt before anything else."""
    send(f"receipt {receipt} of order {order_id}")


@app.task(name="shop.track_parcel", retry=Retry.fixed(PAUSE_S, attempts=49, on=(LookupError,)))
def track_parcel(order_id: int) -> None:
    """Ask the carrier until the parcel has a number."""
    Order.objects.filter(pk=order_id).update(parcel=carrier.call(order_id))
    ask_for_review.using(after=timedelta(days=14)).enqueue(order_id)


@app.task(name="shop.ask_for_review", retry=Retry(attempts=1))
def ask_for_review(order_id: int) -> None:
    """Ask for a review two weeks later."""
    send(f"how was order {order_id}?")


@app.task(name="shop.sync_price", limits=["supplier"], timeout=20, priority=-9)
def sync_price(sku: str) -> None:
    """Ask the supplier, who allows ten calls a second (of all workers together)."""
    send(f"price of {sku}")


@app.cron("30 3 * * *", tz="Europe/Vilnius")
@app.task(name="shop.nightly")
def nightly() -> None:
    """Report, and sync all prices when nothing else is to do."""
    send(f"{Order.objects.filter(is_paid=True).count()} orders are paid")
    sync_price.enqueue_many([(sku,) for sku in set(Item.objects.values_list("sku", flat=True))])


def place_order(request: HttpRequest) -> JsonResponse:
    """Store an order and its first job by one commit."""
    with transaction.atomic():
        order = Order.objects.create(total=request.POST["total"])
        for sku in request.POST.getlist("sku"):
            Item.objects.create(order=order, sku=sku)
        charge_card.using(tx=connection).enqueue(order.pk)
    return JsonResponse({"order": order.pk}, status=202)
