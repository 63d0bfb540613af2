"""Floors under what the service runs with: an older version may have a known hole."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = [Requirement(text) for text in PROJECT["project"]["dependencies"]]

SAFE_FROM = {"aiohttp": "3.14.5"}
"""The first versions without a hole that is known today."""


def locked(name: str) -> Version:
    text = (ROOT / "requirements.lock").read_text()
    (version,) = re.findall(rf"(?m)^{re.escape(name)}==([^ ;]+)", text)
    return Version(version)


def floor(requirement: Requirement) -> Version | None:
    """The oldest version that may be installed."""
    floors = [Version(one.version) for one in requirement.specifier if one.operator == ">="]
    return max(floors, default=None)


@pytest.mark.parametrize("requirement", RUNTIME, ids=lambda requirement: requirement.name)
def test_every_dependency_has_a_floor_and_its_lock_keeps_it(requirement: Requirement) -> None:
    least = floor(requirement)
    assert least is not None
    assert locked(requirement.name) in requirement.specifier
    assert locked(requirement.name) >= least
    assert least >= Version(SAFE_FROM.get(requirement.name, "0"))


def test_a_dependency_without_a_floor_is_caught() -> None:
    assert floor(Requirement("aiohttp<4")) is None
    assert floor(Requirement("aiohttp>=3,<4")) == Version("3")
