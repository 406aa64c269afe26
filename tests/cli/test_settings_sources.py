"""The sources of settings, their priority, and the messages for mistakes."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.settings_page import settings_page

from tidelog.services.settings.settings import Settings
from tidelog.services.settings.settings_sources import known_settings, load_settings
from tidelog.storage.errors import Invalid

DOCS = Path(__file__).parents[2] / "docs"


def config(folder: Path, text: str) -> Path:
    path = folder / "tidelog.toml"
    path.write_text(text)
    return path


def test_without_sources_the_defaults_hold() -> None:
    assert load_settings().settings == Settings()


def test_each_source_is_stronger_than_the_one_before(tmp_path: Path) -> None:
    path = config(tmp_path, "port = 1\nshards = 1\nnum.partitions = 1\n")
    loaded = load_settings(
        config=path, environ={"TIDELOG_SHARDS": "2", "TIDELOG_NUM_PARTITIONS": "2"}, flags={"num.partitions": "3"}
    )
    assert (loaded.settings.port, loaded.settings.shards, loaded.settings.num_partitions) == (1, 2, 3)
    sources = {chosen.setting.name: chosen.source for chosen in loaded.chosen}
    assert sources["port"] == str(path)
    assert sources["shards"] == "TIDELOG_SHARDS"
    assert sources["num.partitions"] == "--num-partitions"
    assert sources["host"] == "default"


@pytest.mark.parametrize(
    "text",
    [
        "flush.interval.ms = 100",
        '"flush.interval.ms" = 100',
        "[flush]\ninterval.ms = 100",
        "[flush.interval]\nms = 100",
    ],
)
def test_a_file_may_dot_quote_or_nest_a_name(tmp_path: Path, text: str) -> None:
    assert load_settings(config=config(tmp_path, text)).settings.flush_interval_ms == 100


def test_a_variable_may_name_the_file(tmp_path: Path) -> None:
    path = config(tmp_path, "port = 7")
    assert load_settings(environ={"TIDELOG_CONFIG": str(path)}).settings.port == 7


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("flush.max.bytes", "4MiB", 4 << 20),
        ("flush.max.bytes", "4 mb", 4_000_000),
        ("flush.max.bytes", "131072", 131_072),
        ("commit.timeout.ms", "5s", 5_000),
        ("commit.timeout.ms", "250ms", 250),
        ("delete.grace.ms", "7d", 604_800_000),
        ("flush.interval.ms", "auto", None),
        ("auto.create.topics.enable", "off", False),
        ("auto.create.topics.enable", "TRUE", True),
        ("store", "memory:", "memory:"),
    ],
)
def test_values_are_read_with_their_units(name: str, text: str, value: object) -> None:
    settings = load_settings(flags={name: text}).settings
    assert getattr(settings, name.replace(".", "_")) == value


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("port", "65536", "0 to 65535"),
        ("port", "http", "a whole number"),
        ("port", "1.5", "a whole number"),
        ("flush.max.bytes", "1KiB", "64KiB to 1GiB"),
        ("flush.max.bytes", "8 MiBs", "a size"),
        ("commit.timeout.ms", "8MiB", "a duration"),
        ("delete.grace.ms", "59s", "1m to 30d"),
        ("log.level", "loud", "debug | info | warning | error"),
        ("auto.create.topics.enable", "maybe", "true or false"),
        ("store", "", "text"),
        ("shards", "auto", "a whole number"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_source(name: str, text: str, told: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings(flags={name: text})
    assert told in str(refused.value)
    assert "--" + name.replace(".", "-") in str(refused.value)


def test_bounds_between_settings_are_kept() -> None:
    with pytest.raises(Invalid, match=r"flush\.max\.bytes must be at most buffer\.max\.bytes"):
        load_settings(flags={"flush.max.bytes": "64MiB", "buffer.max.bytes": "32MiB"})


def test_an_unknown_name_in_a_file_tells_the_nearest_known(tmp_path: Path) -> None:
    path = config(tmp_path, "[flush]\nintervall.ms = 3")
    with pytest.raises(Invalid, match=r"flush\.intervall\.ms.*did you mean flush\.interval\.ms") as refused:
        load_settings(config=path)
    assert str(path) in str(refused.value)


def test_an_unknown_variable_is_refused() -> None:
    with pytest.raises(Invalid, match=r"TIDELOG_PROT.*did you mean port"):
        load_settings(environ={"TIDELOG_PROT": "1"})


def test_variables_of_other_programs_are_left_alone() -> None:
    environ = {"TIDELOG_BROKER": "http://x", "TIDELOG_REQUIRE_ALL": "1", "PORT": "1", "HOME": "/"}
    assert load_settings(environ=environ).settings == Settings()


SERVICE_LINKS = {
    "TIDELOG_SERVICE_HOST": "10.0.0.1",
    "TIDELOG_SERVICE_PORT": "8080",
    "TIDELOG_SERVICE_PORT_HTTP": "8080",
    "TIDELOG_PORT": "tcp://10.0.0.1:8080",
    "TIDELOG_PORT_8080_TCP": "tcp://10.0.0.1:8080",
    "TIDELOG_PORT_8080_TCP_PROTO": "tcp",
    "TIDELOG_PORT_8080_TCP_PORT": "8080",
    "TIDELOG_PORT_8080_TCP_ADDR": "10.0.0.1",
    "TIDELOG_COMPACTOR_SERVICE_HOST": "fd00::7",
    "TIDELOG_COMPACTOR_SERVICE_PORT": "9090",
    "TIDELOG_COMPACTOR_PORT": "udp://[fd00::7]:9090",
    "TIDELOG_COMPACTOR_PORT_9090_UDP_ADDR": "fd00::7",
}
"""The variables that Kubernetes sets in a container of a namespace with Services named `tidelog` and
`tidelog-compactor`."""


def test_variables_that_kubernetes_makes_of_services_are_left_alone() -> None:
    loaded = load_settings(environ={**SERVICE_LINKS, "TIDELOG_SHARDS": "8"})
    assert loaded.settings == replace(Settings(), shards=8)
    assert set(loaded.service_links) == set(SERVICE_LINKS)


def test_a_port_that_is_a_number_is_the_setting_beside_a_service_of_that_name() -> None:
    loaded = load_settings(environ={**SERVICE_LINKS, "TIDELOG_PORT": "9000"})
    assert loaded.settings.port == 9000
    assert "TIDELOG_PORT" not in loaded.service_links


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIDELOG_SERVICE_PORT", "8080"),  # without TIDELOG_SERVICE_HOST a person must have set it
        ("TIDELOG_SERVICE_HOST", "10.0.0.1"),
        ("TIDELOG_SERVICE_NAME", "web"),
        ("TIDELOG_HTTP_PORT", "8080"),
        ("TIDELOG_PORT", "tcp://"),
        ("TIDELOG_PORT_8080", "1"),
    ],
)
def test_a_slip_of_the_pen_that_looks_like_them_is_refused(variable: str, value: str) -> None:
    with pytest.raises(Invalid, match=f"{variable}: "):
        load_settings(environ={variable: value})


def test_a_file_that_is_not_there_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        load_settings(config=tmp_path / "none.toml")
    with pytest.raises(Invalid, match="not TOML"):
        load_settings(config=config(tmp_path, "port ="))


def test_every_default_keeps_the_bounds_of_its_setting() -> None:
    for setting in known_settings().values():
        assert setting.parsed(setting.shown(setting.default)) == setting.default


def test_the_page_of_settings_is_that_of_the_code() -> None:
    assert (DOCS / "settings.md").read_text() == settings_page(), (
        "run: python -m tests.cli.settings_page > docs/settings.md"
    )


def test_the_pages_example_is_a_file_that_loads(tmp_path: Path) -> None:
    example = settings_page().split("```toml\n")[1].split("```")[0]
    settings = load_settings(config=config(tmp_path, example)).settings
    assert (settings.flush_max_bytes, settings.flush_interval_ms) == (4 << 20, 100)
