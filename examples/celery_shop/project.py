"""What stays: Django's settings, the models, and the services outside."""

import os
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connection, models

STORE = urlsplit(os.environ.get("DUELINE_STORE", ""))  # Django's own database, too
FILE = os.environ.get("SHOP_FILE", ":memory:")  # without PostgreSQL
PAUSE_S = float(os.environ.get("SHOP_PAUSE", "60"))

if not settings.configured:
    database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": FILE}
    if STORE.scheme == "postgresql":
        database = {
            "ENGINE": "django.db.backends.postgresql", "NAME": STORE.path.strip("/"),
            "HOST": STORE.hostname, "PORT": STORE.port,
            "USER": STORE.username, "PASSWORD": STORE.password,
        }  # fmt: skip
    settings.configure(DATABASES={"default": database}, ALLOWED_HOSTS=["*"], USE_TZ=True)
    django.setup()


class Order(models.Model):
    """An order, and what was done for it."""

    total = models.DecimalField(max_digits=9, decimal_places=2)
    is_paid = models.BooleanField(default=False)
    packed = models.CharField(max_length=200, default="")
    parcel = models.CharField(max_length=40, default="")

    class Meta:
        """Where it belongs."""

        app_label = "shop"


class Item(models.Model):
    """A thing that was ordered."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    sku = models.CharField(max_length=20)

    class Meta:
        """Where it belongs."""

        app_label = "shop"


class Mail(models.Model):
    """A letter that was sent."""

    text = models.CharField(max_length=200)

    class Meta:
        """Where it belongs."""

        app_label = "shop"


def create_tables() -> None:
    """Create the tables of the models."""
    with connection.schema_editor() as editor:
        for model in (Order, Item, Mail):
            editor.create_model(model)


def send(text: str) -> None:
    """Send a letter."""
    Mail.objects.create(text=text)


class Service:
    """A service on the network that is busy at the first call for each thing."""

    def __init__(self, error: type[Exception]) -> None:
        self._error, self._seen = error, set[object]()

    def call(self, key: object) -> str:
        """Do something for a key, once; return a receipt."""
        if key not in self._seen:
            self._seen.add(key)
            raise self._error("busy")
        return f"receipt-{key}"


bank, carrier = Service(ConnectionError), Service(LookupError)
