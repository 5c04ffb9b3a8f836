"""Who made a change, over HTTP and on the dashboard (V13)."""

import pytest

from dueline import Dueline
from dueline.cli.commands.web import read_tokens
from dueline.core.actor import actor_of
from dueline.core.errors import ConfigError
from dueline.jobs.history import attempts
from dueline.web import Identity, api, dashboard
from tests.harness.http_api import Program
from tests.harness.web import Shop, Visitor

TOKEN = "t" * 20


def said(app: Dueline, job: str) -> list[str]:
    """Return what the history says of a job that was changed by hand."""
    events = attempts(app.engine.store, "mail", 1, everything=True)
    return [event.error for event in events if event.job == job and not event.worker]


def test_a_token_has_a_name_and_headers_of_clients_have_none(shop: Shop) -> None:
    # V13
    program = Program(api(shop.app, tokens={TOKEN: Identity("ci", "operator"), "u" * 20: "reader"}))
    program.token = TOKEN
    path = f"/jobs/{shop.scheduled}/cancel"
    program.call("POST", path, {}, x_forwarded_user="root", remote_user="root", x_user="root")
    assert said(shop.app, shop.scheduled) == ["cancelled by ci (HTTP API)"]
    (action,) = shop.app.admin.actions()
    assert (action.who, action.door, action.what) == ("ci", "HTTP API", "cancel")


def test_the_dashboard_names_the_user_who_logged_in(shop: Shop) -> None:
    # V13
    pages = dashboard(shop.app, authorize=lambda _: Identity("ann (HTTP API)\n\x1b", "operator"))
    visitor = Visitor(pages)
    visitor.post(f"/jobs/{shop.dead}/retry")
    (text,) = said(shop.app, shop.dead)
    assert text == "retried by ann (HTTP API) (dashboard)"
    assert text in visitor.text(f"/jobs/{shop.dead}").replace("&#34;", '"')
    assert ">dashboard</td>" in visitor.text("/audit")


def test_a_workflow_is_forked_over_http_and_on_the_dashboard(shop: Shop) -> None:
    # W15
    program = Program(api(shop.app, role="operator"))
    refused = program.call("POST", f"/workflows/{shop.flow}/fork", {"from_step": 99}, status=404)
    assert "has no step 99" in refused["title"] + refused.get("detail", "")
    program.call("POST", f"/workflows/{shop.flow}/fork", {"from_step": -1}, status=422)
    new = program.call("POST", f"/workflows/{shop.flow}/fork", {"from_step": 1}, status=201)["id"]
    assert shop.app.flow(new).progress.ended == {"done": 1}
    visitor = Visitor(dashboard(shop.app, role="operator"))
    assert "Fork from step" in visitor.text(f"/workflows/{shop.flow}")
    answer = visitor.post(f"/workflows/{shop.flow}/fork", {"from": "1"}, follow=True)
    assert "Began this one with the records of another." in answer.text
    assert visitor.post(f"/workflows/{shop.flow}/fork", {"from": "x"}).status_code == 400
    assert len(list(shop.app.flows())) == 3
    assert [action.what for action in shop.app.admin.actions()].count(
        "fork workflow from step 1"
    ) == 2


def test_names_are_one_line_of_printable_characters() -> None:
    # V13
    assert actor_of("a\x00b\nc\u202e  d", "code").name == "a b c d"
    assert actor_of(" \t ", "code").name == "unknown"
    assert len(actor_of("x" * 999, "code").name) == 200


def test_tokens_of_the_command_line_have_names() -> None:
    # V13
    assert read_tokens(f"operator@ci:{TOKEN}, reader:{'u' * 20}") == {
        TOKEN: Identity("ci", "operator"), "u" * 20: "reader",
    }  # fmt: skip
    for wrong in (f"operator@:{TOKEN}", f"@ci:{TOKEN}", f"boss@ci:{TOKEN}", "operator@ci:"):
        with pytest.raises(ConfigError, match="neither ROLE:TOKEN nor"):
            read_tokens(wrong)
