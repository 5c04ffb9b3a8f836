"""The files of deploy/: each is read by what it is for, or by a parser of its format."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator

import yaml

from dueline import Dueline
from dueline.admin.metrics import StoreMetrics, WorkerMetrics
from dueline.worker.heartbeat import Load
from dueline.worker.tally import Tally
from tests.harness.markdown import ROOT
from tests.harness.servers import absent

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "dueline-rules.yml"
DASHBOARD = DEPLOY / "grafana" / "dueline.json"


def exported() -> set[str]:
    """Return the names of all metrics, as queries name them."""
    app = Dueline("memory://")
    found = []
    for collector in (StoreMetrics(app.engine), WorkerMetrics(Tally().totals, lambda: Load(1, 0))):
        found += list(collector.collect())
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
        absent("promtool", "apt install prometheus")
    for kind, path in (("rules", RULES), ("config", RULES.with_name("prometheus.yml"))):
        subprocess.run([promtool, "check", kind, path], check=True, capture_output=True)
