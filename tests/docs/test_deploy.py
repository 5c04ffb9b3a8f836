"""The files of deploy/: each is read by what it is for, or by a parser of its format (V5, O12)."""

import configparser
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from prometheus_client import CollectorRegistry
from typer.core import TyperGroup
from typer.main import get_command

from dueline import Dueline
from dueline.admin.metrics import StoreMetrics, WorkerMetrics
from dueline.admin.scaling import Scale
from dueline.api.worker_http import asked
from dueline.cli.main import root_with
from dueline.contrib.prometheus import count_enqueues
from dueline.core.clock import SECOND_US
from dueline.core.durations import parse_span
from dueline.worker.heartbeat import Load
from dueline.worker.tally import Tally
from dueline.worker.worker import LIVE_WITHIN_US
from tests.harness.markdown import ROOT
from tests.harness.servers import absent

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "dueline-rules.yml"
PROBES = {"startup": "/readyz", "liveness": "/livez", "readiness": "/readyz"}
DASHBOARD = DEPLOY / "grafana" / "dueline.json"


def exported() -> set[str]:
    """Return the names of all metrics, as queries name them."""
    app = Dueline("memory://")
    found = []
    for collector in (StoreMetrics(app.engine), WorkerMetrics(Tally().totals, lambda: Load(1, 0))):
        found += list(collector.collect())
    count_enqueues(app, registry=(registry := CollectorRegistry()))
    found += list(registry.collect())
    names = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
    app.close()
    return {f"{one.name}{end}" for one in found for end in names[one.type]}


def queries() -> Iterator[str]:
    """Yield the queries of the rules and of the dashboard."""
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    yield from (one["expr"] for panel in dashboard["panels"] for one in panel["targets"])
    yield from (one["query"] for one in dashboard["templating"]["list"])


def test_rules_and_dashboard_name_metrics_that_exist() -> None:
    named = {name for query in queries() for name in re.findall(r"\bdueline_\w+", query)}
    assert named - exported() == set()


def test_the_page_names_all_metrics() -> None:
    page = (ROOT / "docs" / "operations" / "monitoring.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(dueline_\w+)", page))
    plain = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported()}
    assert named == plain


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_promtool_accepts_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        absent("prometheus", "apt-get install prometheus")
    for kind, path in (("rules", RULES), ("config", RULES.with_name("prometheus.yml"))):
        subprocess.run([promtool, "check", kind, path], check=True, capture_output=True)


def load(path: str) -> list[Any]:
    """Read the documents of a YAML file."""
    return list(yaml.safe_load_all((DEPLOY / path).read_text(encoding="utf-8")))


def check_command(words: Sequence[str]) -> Mapping[str, Any]:
    """Check that a command takes these words; return its options."""
    group = get_command(root_with(words[0]))
    assert isinstance(group, TyperGroup)
    return group.commands[words[0]].make_context(words[0], list(words[1:])).params


def test_the_unit_of_systemd() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "systemd" / "dueline-worker.service")
    service = unit["Service"]
    options = check_command(service["ExecStart"].split()[1:])
    assert service["Type"] == "notify"
    assert int(service["TimeoutStopSec"]) > parse_span(options["drain"]) / SECOND_US
    assert int(service["WatchdogSec"]) > LIVE_WITHIN_US / SECOND_US


def test_the_timer_of_systemd_updates_and_audits() -> None:
    text = (DEPLOY / "systemd" / "dueline-pipeline.service").read_text(encoding="utf-8")
    commands = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    assert [command.split()[2] for command in commands] == ["run", "audit"]
    for command in commands:
        check_command(command.split()[1:])
    timer = (DEPLOY / "systemd" / "dueline-pipeline.timer").read_text(encoding="utf-8")
    assert "WantedBy=timers.target" in timer


def test_the_image() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    steps = [line.split(" ", 1) for line in text.splitlines() if line and line[0] != "#"]
    kinds = dict(steps)
    assert " ".join(kind for kind, _ in steps) == (
        "FROM WORKDIR RUN COPY RUN COPY USER ENV EXPOSE ENTRYPOINT CMD"
    )
    assert json.loads(kinds["ENTRYPOINT"]) == ["dueline"]
    assert int(kinds["USER"]) > 0
    assert check_command(json.loads(kinds["CMD"]))["http"].endswith(f":{kinds['EXPOSE']}")


def test_the_services_of_compose() -> None:
    (compose,) = load("docker/compose.yaml")
    services = compose["services"]
    for name in ("migrate", "worker", "web"):
        check_command(services[name]["command"])
        assert "DUELINE_STORE" in services[name]["environment"]
    assert {one for service in services.values() for one in service.get("depends_on", ())} <= {
        *services
    }


def test_the_manifests_of_kubernetes() -> None:
    deployment, service = load("kubernetes/worker.yaml")
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    options = check_command(container["args"])
    drain_s = parse_span(options["drain"]) / SECOND_US
    assert pod["spec"]["terminationGracePeriodSeconds"] > drain_s
    (port,) = container["ports"]
    assert options["http"] == f"0.0.0.0:{port['containerPort']}"
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in PROBES}
    assert {name: one["path"] for name, one in probes.items()} == PROBES
    assert {one["port"] for one in probes.values()} == {port["name"]}
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (scaled,) = load("kubernetes/keda.yaml")
    assert scaled["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    (trigger,) = scaled["spec"]["triggers"]
    url = urlsplit(trigger["metadata"]["url"])
    assert (url.hostname or "").startswith(f"{service['metadata']['name']}.")
    assert (url.path, url.port) == ("/scale", service["spec"]["ports"][0]["port"])
    assert asked(parse_qs(url.query))[0] == ("default",)
    assert trigger["metadata"]["valueLocation"] in {one.name for one in fields(Scale)}
