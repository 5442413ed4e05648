"""Dashboards and rules as data, and the metrics that they speak of."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from fastvideo.telemetry.instruments import INSTRUMENTS, plain

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
RULES = DEPLOY / "prometheus" / "alerts.yml"

_NAME = re.compile(r"\b(?:fastvideo|http|rpc|process)_[a-z0-9_]+")
_LABELS = {plain(label) for one in INSTRUMENTS for label in one.labels}
# What Grafana puts in for its variables.
_VARIABLES = {"$__rate_interval": "5m", "$model": ".*"}


def dashboard(path: Path) -> Any:
    """A dashboard's document."""
    return json.loads(path.read_text())


def queries(path: Path) -> list[str]:
    """The queries of a dashboard, its variables replaced."""
    found = [
        target["expr"] for panel in dashboard(path)["panels"] for target in panel.get("targets", ())
    ]
    for name, value in _VARIABLES.items():
        found = [query.replace(name, value) for query in found]
    return found


def rules() -> list[Any]:
    """The alert rules."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def names_in(query: str) -> set[str]:
    """The metrics of a query, as samples are named."""
    return set(_NAME.findall(query)) - _LABELS


def names_used() -> set[str]:
    """Every metric that a dashboard or a rule uses."""
    of_dashboards = [query for path in DASHBOARDS for query in queries(path)]
    return {
        name
        for query in (*of_dashboards, *(r["expr"] for r in rules()))
        for name in names_in(query)
    }
