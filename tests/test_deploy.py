"""What is deployed beside the service: rules and panels ask for what is there and explained."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reservation_service.metrics import Metrics, Standing
from tests.support.metrics import names

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
OPERATIONS = ROOT / "docs" / "operations.md"

LABELS = {"instance", "job", "le", "route", "status", "kind", "trigger", "outcome", "code", "table"}
STANDING = Standing(
    queue_depth=0,
    feed_readers=0,
    clock_divergence_ms=0,
    database_bytes=0,
    wal_bytes=0,
    pending=0,
    overdue=0,
    overdue_ms=0,
    stuck=0,
    transitions={},
)
METRICS = Metrics()
METRICS.watch_writer(os.getpid())
KNOWN = names(METRICS.render(STANDING).decode()) | {"up"}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    text = (DEPLOY / "grafana" / "dashboards" / "reservations.json").read_text()
    found: list[dict[str, Any]] = json.loads(text)["panels"]
    return found


def queries() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def complaints(query: str) -> list[str]:
    """Names and labels that a query asks for and that are not there."""
    asked = set(re.findall(r"\b(?:reservation_|process_)\w+|\bup\b", query))
    labels = re.findall(r"\b(?:by|on|without|ignoring) \(([^)]*)\)", query)
    chosen = re.findall(r"[{,]\s*(\w+)\s*[=!]", query)
    used = {label.strip() for given in labels for label in given.split(",")} | set(chosen)
    missing = [] if asked else ["asks for nothing"]
    return missing + sorted(asked - KNOWN) + sorted(used - LABELS)


@pytest.mark.parametrize(("place", "query"), list(queries()))
def test_every_metric_that_is_asked_for_exists(place: str, query: str) -> None:
    assert complaints(query) == [], place


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("reservation_alarms_sleeping > 0", ["reservation_alarms_sleeping"]),
        ("rate(reservation_http_requests[1m])", ["reservation_http_requests"]),
        ("sum by (seat) (reservation_alarms_stuck)", ["seat"]),
        ('reservation_http_requests_total{path="/"}', ["path"]),
        ("1", ["asks for nothing"]),
    ],
)
def test_a_planted_name_is_caught(query: str, complaint: list[str]) -> None:
    assert complaints(query) == complaint


def test_every_alert_says_whom_to_wake_and_what_has_happened() -> None:
    assert len(rules()) >= 10
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule
        assert rule["annotations"]["summary"].endswith("."), rule


def test_every_alert_is_explained() -> None:
    table = OPERATIONS.read_text().partition("| alert | what it means |")[2].split("\n\n")[0]
    explained = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert explained == [rule["alert"] for rule in rules()]


def test_every_metric_is_explained_and_no_other() -> None:
    table = OPERATIONS.read_text().partition("| metric | what it counts |")[2].split("\n\n")[0]
    explained = set(re.findall(r"^\| `(reservation_\w+)` \|", table, re.MULTILINE))
    ours = {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in KNOWN if name.startswith("reserv")
    }
    assert explained == ours


def test_every_panel_is_on_the_dashboard_once() -> None:
    places = [tuple(panel["gridPos"].values()) for panel in panels()]
    assert len(set(places)) == len(places) >= 12
    assert len({panel["id"] for panel in panels()}) == len(places)


def test_compose_starts_monitoring_only_when_asked_and_for_this_machine_alone() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["monitoring"]
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
        for volume in services[name]["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith("./") or (ROOT / source).is_dir(), source
    (target,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())[
        "scrape_configs"
    ][0]["static_configs"][0]["targets"]
    assert target == "reservation-service:8787"
