"""`docker-compose.yml` is valid by Compose's own schema, closed to the outside, and contains no secret."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from infra.laptop_env import EXAMPLE
from tests.infra import compose_file

from tidelog.services.settings.settings import Settings

PINNED = re.compile(r"[^:@]+(/[^:@]+)+:(?!latest)[\w.-]*\d[\w.-]*(@sha256:[0-9a-f]{64})?")


SCHEMA = json.loads((resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())


def test_it_is_valid_by_the_compose_specification() -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(compose_file.document())


def test_the_schema_would_see_a_mistake() -> None:
    wrong = {**compose_file.document(), "services": {"broker": {"image": "tidelog", "helthcheck": {}}}}
    with pytest.raises(jsonschema.ValidationError, match="helthcheck"):
        jsonschema.Draft202012Validator(SCHEMA).validate(wrong)


@pytest.mark.parametrize("name", compose_file.services())
def test_ports_are_open_on_loopback_alone(name: str) -> None:
    for port in compose_file.services()[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)


def test_every_secret_has_to_be_given() -> None:
    """Neither a default nor an empty value is accepted: ``:?`` refuses both."""
    named = list(compose_file.REFERENCE.finditer(compose_file.FILE.read_text()))
    assert {found[1] for found in named} == set(compose_file.VARIABLES)
    for found in named:
        assert found[2] == ":?set it in .env, see docs/deploy.md"


def test_no_variable_that_sounds_secret_has_a_value_in_the_file() -> None:
    for name, value in _literals():
        assert not re.search("SECRET|PASSWORD|TOKEN$", name) or value in ("tidelog-main", "${}"), name


def _literals() -> Iterator[tuple[str, str]]:
    for line in compose_file.FILE.read_text().splitlines():
        if found := re.fullmatch(r"\s+([A-Z0-9_]+): (.+)", line):
            yield found[1], compose_file.REFERENCE.sub("${}", found[2])


def test_a_laptops_env_fills_every_variable_and_no_two_runs_are_equal() -> None:
    def made() -> dict[str, str]:
        script = Path(EXAMPLE).parent / "infra/laptop_env.py"
        text = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
        return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))

    first, second = made(), made()
    assert set(first) == set(compose_file.VARIABLES)
    assert len({*first.values(), *second.values()}) == 2 * len(first)
    assert all(re.fullmatch("[0-9a-f]{32}", value) for value in first.values())


def test_git_never_sees_the_env_file() -> None:
    assert ".env" in (compose_file.ROOT / ".gitignore").read_text().splitlines()


def test_the_example_holds_no_value() -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if not line.startswith("#")]
    assert sorted(lines) == sorted(f"{name}=" for name in compose_file.VARIABLES)


@pytest.mark.parametrize("name", compose_file.services())
def test_images_are_pinned_to_a_release(name: str) -> None:
    service = compose_file.services()[name]
    assert "build" in service or PINNED.fullmatch(service["image"])


@pytest.mark.parametrize("name", compose_file.services())
def test_health_conditions_that_services_wait_for_exist(name: str) -> None:
    services = compose_file.services()
    for other, wanted in services[name].get("depends_on", {}).items():
        assert wanted["condition"] != "service_healthy" or "healthcheck" in services[other]
        assert wanted["condition"] != "service_completed_successfully" or services[other]["restart"] == "no"


@pytest.mark.parametrize("name", compose_file.services())
def test_mounted_files_exist_and_are_read_only(name: str) -> None:
    for volume in compose_file.services()[name].get("volumes", []):
        source, _, rest = volume.partition(":")
        if source.startswith("."):
            assert (compose_file.ROOT / source).exists()
            assert rest.endswith(":ro")
        else:
            assert source in compose_file.document()["volumes"]


@pytest.mark.parametrize("name", [name for name in compose_file.services() if name.startswith("broker")])
def test_a_broker_may_finish_its_stop_and_writes_to_its_spill_volume_alone(name: str) -> None:
    broker = compose_file.services()[name]
    assert int(broker["stop_grace_period"].removesuffix("s")) * 1000 > Settings().shutdown_timeout_ms
    assert broker["read_only"] is True
    assert broker["cap_drop"] == ["ALL"]
