"""Methods of an application for alerts, and the job that calls their webhook."""

import hmac
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from dueline.api.webhooks import WebhookMethods
from dueline.core.clock import Clock
from dueline.core.constraints import check_constraints, check_value
from dueline.core.queue_settings import DEFAULT_QUEUE, check_queue_name
from dueline.foresight.alert_settings import (
    WEBHOOK_TASK,
    AlertSettings,
    Secret,
    Url,
    write_settings,
)
from dueline.foresight.target import target_of
from dueline.jobs.queue import Queues

SIGNATURE: Final = "Dueline-Signature"
"""Header of a webhook's request: `t=<seconds>,v1=<HMAC-SHA256 of "<seconds>.<body>">`."""

REQUEST_S: Final = 10.0
"""Maximum duration of a webhook's request, in seconds."""


class AlertMethods(WebhookMethods):
    """The methods of an application for alerts, and for webhooks of jobs."""

    def __init__(self, url: str | None = None, *, clock: Clock | None = None) -> None:
        super().__init__(url, clock=clock)
        self._alert_settings: AlertSettings | None = None

    def alerts(
        self,
        targets: Mapping[str, str] | None = None,
        *,
        webhook: str | None = None,
        secret: str | None = None,
        queue: str = DEFAULT_QUEUE,
        is_on: bool = True,
    ) -> None:
        """Set which start latencies queues keep, and where alerts go.

        The maintenance leader raises alerts in its log without this, too: for shards that stand
        still, tenants that starve, tasks whose failures jump, and stopped durable functions. A
        target adds alerts for the error budget, and for a queue that will miss its target within
        the hour. Settings are stored when the store is first used, or immediately if it is open.

        Args:
            targets: Target of each queue, such as {"mail": "p99<2s"}; "*" for the others.
            webhook: URL that a job posts each alert to, when it is raised and when it ends.
            secret: Key of the webhook's signature, at least 16 characters.
            queue: Queue of the webhook's jobs.
            is_on: False to raise no alerts at all.

        Raises:
            BadInput: A target, the URL or the queue is invalid, or a webhook has no secret.
        """
        texts = {name: str(target_of(text)) for name, text in (targets or {}).items()}
        for name in texts:
            if name != "*":
                check_queue_name(name)
        if webhook is not None:
            check_value(webhook, Url, "webhook")
            check_value(secret, Secret, "secret")
            check_queue_name(queue)
            call = webhook_caller(webhook, cast("str", secret))
            cast("Any", self).task(name=WEBHOOK_TASK, queue=queue, timeout=3 * REQUEST_S)(call)
        settings = AlertSettings(
            tuple(sorted(texts.items())), queue if webhook is not None else "", is_on
        )
        check_constraints(settings)
        self._alert_settings = settings
        if self.is_open:
            write_settings(self.engine.store, settings, self.engine.ids)

    def declare(self, queues: Queues) -> None:
        """Store the settings of alerts that were declared before the first use."""
        super().declare(queues)
        if self._alert_settings is not None:
            write_settings(queues.engine.store, self._alert_settings, queues.engine.ids)


def webhook_caller(url: str, secret: str) -> Callable[[str], None]:
    """Return the handler that posts an alert, signed."""

    def call_webhook(body: str) -> None:
        import time  # noqa: PLC0415  (as those below: only this job needs them)
        from urllib.request import Request, urlopen  # noqa: PLC0415

        seconds = int(time.time())
        headers = {
            "Content-Type": "application/json",
            SIGNATURE: f"t={seconds},v1={signature(secret, seconds, body)}",
        }
        request = Request(url, body.encode(), headers, method="POST")  # noqa: S310  (see `Url`)
        with urlopen(request, timeout=REQUEST_S) as answer:  # noqa: S310
            answer.read(1)

    return call_webhook


def signature(secret: str, seconds: int, body: str) -> str:
    """Return the signature of a webhook's request, in hexadecimal."""
    return hmac.new(secret.encode(), f"{seconds}.{body}".encode(), "sha256").hexdigest()
