"""Methods of an application for webhooks, and the job that calls one."""

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from dueline.api.connection import Connection
from dueline.api.task_declaration import check_retry
from dueline.core.call_options import read_options
from dueline.core.clock import Clock
from dueline.core.constraints import Count, check_value
from dueline.core.errors import BadInput
from dueline.core.limit_names import KEY_CHARACTERS_MAX
from dueline.core.retry import Retry
from dueline.jobs.webhooks import LIMIT, QUEUE, TASK
from dueline.tasks.handler import Context
from dueline.tasks.raised import Cancel
from dueline.worker.execution import job_here

REQUEST_S: Final = 10.0
"""Maximum duration of a request, in seconds."""

RETRY: Final = Retry(attempts=16, base=5, cap=4 * 3600)
"""Attempts of a delivery by default: over a day."""

ADDRESS_CHARACTERS_MAX: Final = 2000
SECRET_CHARACTERS_MIN: Final = 16
_PREFIX: Final = "whsec_"


class WebhookMethods(Connection):
    """The method of an application for webhooks."""

    def __init__(self, url: str | None = None, *, clock: Clock | None = None) -> None:
        super().__init__(url, clock=clock)
        self._webhook_hosts: Hosts | None = None

    def webhooks(
        self,
        *,
        secret: str | Sequence[str],
        allow: Iterable[str] = (),
        retry: Retry | None = None,
        at_once: int = 4,
    ) -> None:
        """Deliver webhooks, which calls name by `using(webhook="https://...")`.

        When such a job ends, as done, dead, cancelled, expired or lost, a job of the queue
        "webhooks" posts that to the address, signed as Standard Webhooks says, at least once. Some
        worker must serve this queue.

        Args:
            secret: Key of the signatures, at least 16 characters, or "whsec_" and base64; several
                while one replaces the other. It is never stored.
            allow: Hosts that may be named, such as "hooks.example.com" or "*.example.com"; these
                may have private addresses and use http. By default all hosts with public
                addresses, by https.
            retry: Attempts and waits of a delivery; by default 16 attempts over a day.
            at_once: Maximum number of requests to one host at the same time.

        Raises:
            BadInput: A value is invalid, or this was called before.
        """
        if self._webhook_hosts is not None:
            raise BadInput("`webhooks` was called before.", hint="Call it once.")
        secrets = secret if isinstance(secret, list | tuple) else [secret]
        keys = [_key(each) for each in secrets]
        if not keys:
            raise BadInput("Webhooks need a secret.", hint="Use `secrets.token_urlsafe(32)`.")
        check_value(at_once, Count, "at_once")
        check_retry(retry)
        hosts = Hosts(allow)
        app = cast("Any", self)
        app.queue(QUEUE, keep=3600)  # a queue with settings is never removed
        app.semaphore(LIMIT, capacity=at_once)
        app.task(
            name=TASK, queue=QUEUE, limits=(f"{LIMIT}:{{host}}",), retry=retry or RETRY,
            timeout=3 * REQUEST_S,
        )(deliverer(hosts, keys))  # fmt: skip
        self._webhook_hosts = hosts

    def read_webhook(self, address: object) -> str:
        """Return the address of a call.

        Raises: BadInput: it is invalid or not allowed, or the application has no webhooks.
        """
        if self._webhook_hosts is None:
            raise BadInput(
                "The application delivers no webhooks.", hint='Call app.webhooks(secret="...").'
            )
        return self._webhook_hosts.checked(address)


class Hosts:
    """Which hosts may be called.

    allow: names, or "*." and a domain; empty for all that have public addresses.

    Raises:
        BadInput: A name is no string.
    """

    def __init__(self, allow: Iterable[str]) -> None:
        names = (None,) if isinstance(allow, str) else tuple(allow)
        for name in names:
            if not isinstance(name, str) or not name or "/" in name:
                raise BadInput(
                    f"`allow` must be a list of hosts (got {allow!r:.80}).",
                    hint='Use allow=["hooks.example.com"].',
                )
        self._names = frozenset(name.lower() for name in names if name is not None)

    def names(self, host: str) -> bool:
        """Return whether the list names a host."""
        parents = host.split(".")
        domains = (f"*.{'.'.join(parents[place:])}" for place in range(1, len(parents)))
        return host in self._names or not self._names.isdisjoint(domains)

    def checked(self, address: object) -> str:
        """Return an address; raise BadInput if it is invalid or not allowed."""
        from dueline.api.webhook_requests import is_private  # noqa: PLC0415  (seldom needed)

        host, scheme = "", ""
        if isinstance(address, str) and len(address) <= ADDRESS_CHARACTERS_MAX:
            try:
                parts = urlsplit(address)
                is_plain = parts.username is None and not parts.fragment and parts.port != 0
                host, scheme = (parts.hostname or "") if is_plain else "", parts.scheme
            except ValueError:  # of the port or an address
                pass
        is_printed = isinstance(address, str) and address.isascii() and address.isprintable()
        if not host or not is_printed or " " in str(address) or len(host) > KEY_CHARACTERS_MAX:
            raise BadInput(
                "`webhook` must be an https URL without a user, a password or a fragment.",
                hint='Use "https://hooks.example.com/jobs".',
            )
        if self.names(host) and scheme in ("http", "https"):
            return cast("str", address)
        if self._names or scheme != "https" or is_private(host):
            raise BadInput(
                f"A webhook may not call {scheme or 'no scheme'}://{host:.80}.",
                hint=f"Use https and a public host, or app.webhooks(..., allow=[{host!r}]).",
            )
        return cast("str", address)


def deliverer(hosts: Hosts, keys: Sequence[bytes]) -> Callable[[Context, str, str], None]:
    """Return the handler that delivers one webhook."""

    def deliver(ctx: Context, host: str, body: str) -> None:
        from dueline.api.webhook_requests import Refused, post  # noqa: PLC0415  (loads http)

        job = job_here()
        address = "" if job is None else read_options(job.opts).deliver_to
        if urlsplit(address).hostname != host:
            raise Cancel("The job has no address: only the end of a job creates it.")
        try:
            hosts.checked(address)
            post(address, body.encode(), f"msg_{ctx.job_id.hex()}", keys,
                 may_be_private=hosts.names(host), timeout_s=REQUEST_S)  # fmt: skip
        except (BadInput, Refused):  # also of another worker's list: a retry changes nothing
            ctx.retry(attempts=1)

    return deliver


def _key(secret: object) -> bytes:
    """Return the bytes of a secret; raise BadInput if it is invalid."""
    if isinstance(secret, str) and len(secret) >= SECRET_CHARACTERS_MIN:
        if not secret.startswith(_PREFIX):
            return secret.encode()
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    raise BadInput(
        f"The secret of webhooks must have at least {SECRET_CHARACTERS_MIN} characters, or be "
        '"whsec_" and base64.',
        hint="Use `secrets.token_urlsafe(32)`, from the environment.",
    )
