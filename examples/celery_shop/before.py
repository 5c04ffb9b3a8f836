"""The shop on Celery."""

from datetime import timedelta

from celery import Celery, chord, group
from celery.schedules import crontab
from django.db import transaction
from django.http import JsonResponse
from django.utils import timezone

from examples.celery_shop.project import PAUSE_S, Item, Order, bank, carrier, send

app = Celery("shop", broker="redis://localhost:6379/0", backend="redis://localhost:6379/1")
app.conf.timezone = "Europe/Vilnius"
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.broker_transport_options = {"visibility_timeout": 3600, "queue_order_strategy": "priority"}
app.conf.beat_schedule = {
    "nightly": {"task": "shop.nightly", "schedule": crontab(hour=3, minute=30)},
}


@app.task(
    name="shop.charge_card",
    bind=True,
    autoretry_for=(ConnectionError,),
    max_retries=5,
    retry_backoff=True,
)
def charge_card(self, order_id):
    """Charge an order; then reserve its items, pack it, and send the receipt."""
    receipt = bank.call(order_id)
    Order.objects.filter(pk=order_id).update(is_paid=True)
    skus = Item.objects.filter(order=order_id).values_list("sku", flat=True)
    chord([reserve_item.s(sku) for sku in skus])(pack_order.s(order_id))
    send_receipt.apply_async((order_id, receipt), priority=0)  # the highest on Redis
    return f"{receipt}, attempt {self.request.retries + 1}"


@app.task(name="shop.reserve_item", autoretry_for=(OSError,), default_retry_delay=30)
def reserve_item(sku):
    """Reserve one item in the warehouse."""
    return sku.upper()


@app.task(name="shop.pack_order")
def pack_order(reserved, order_id):
    """Pack an order when all of its items are reserved."""
    Order.objects.filter(pk=order_id).update(packed=",".join(reserved))
    track_parcel.delay(order_id)


@app.task(name="shop.send_receipt")
def send_receipt(order_id, receipt):
    """Send the receipt before anything else."""
    send(f"receipt {receipt} of order {order_id}")


@app.task(name="shop.track_parcel", bind=True, max_retries=48)
def track_parcel(self, order_id):
    """Ask the carrier until the parcel has a number."""
    try:
        parcel = carrier.call(order_id)
    except LookupError as error:
        raise self.retry(exc=error, countdown=PAUSE_S)
    Order.objects.filter(pk=order_id).update(parcel=parcel)
    ask_for_review.apply_async((order_id,), eta=timezone.now() + timedelta(days=14))


@app.task(name="shop.ask_for_review", ignore_result=True)
def ask_for_review(order_id):
    """Ask for a review two weeks later."""
    send(f"how was order {order_id}?")


@app.task(name="shop.sync_price", rate_limit="10/s", soft_time_limit=20)
def sync_price(sku):
    """Ask the supplier, who allows ten calls a second (of each worker, here)."""
    send(f"price of {sku}")


@app.task(name="shop.nightly")
def nightly():
    """Report, and sync all prices when nothing else is to do."""
    send(f"{Order.objects.filter(is_paid=True).count()} orders are paid")
    skus = Item.objects.values_list("sku", flat=True).distinct()
    group(sync_price.s(sku) for sku in skus).apply_async(priority=9)


def place_order(request):
    """Store an order; enqueue after the commit, and hope to live until then."""
    with transaction.atomic():
        order = Order.objects.create(total=request.POST["total"])
        for sku in request.POST.getlist("sku"):
            Item.objects.create(order=order, sku=sku)
        transaction.on_commit(lambda: charge_card.delay(order.pk))
    return JsonResponse({"order": order.pk}, status=202)
