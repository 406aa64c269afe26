"""`listeners` and `advertised.listeners`: what they may say, and what clients are told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from infra.loopback_ports import free_port

from tidelog.services.doors.kafka_counts import KafkaCounts
from tidelog.services.http.http_door import HttpDoor
from tidelog.services.kafka.kafka_door import KafkaDoor
from tidelog.services.runtime.front_doors import front_doors
from tidelog.services.settings import listeners
from tidelog.services.settings.listeners import LISTENERS_MAX, Listener, parse_listeners
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Runtime


@contextmanager
def bound(given: str | None, advertised: str | None = None, **others: Any) -> Iterator[Settings]:
    """The settings after the door has bound its sockets."""
    door = KafkaDoor(Runtime(), KafkaCounts())
    try:
        yield door.bind(Settings(listeners=given, advertised_listeners=advertised, **others))
    finally:
        door.close()


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Listener("PLAINTEXT", "127.0.0.1", 9092)),
        ("inside://:9093", Listener("INSIDE", "", 9093)),
        ("A-B.C_1://[::1]:65535", Listener("A-B.C_1", "::1", 65_535)),
    ],
)
def test_a_listener_has_kafkas_form(text: str, listener: Listener) -> None:
    assert parse_listeners("listeners", text) == (listener,)
    assert parse_listeners("listeners", str(listener)) == (listener,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("localhost:9092", "'localhost:9092' is not NAME://HOST:PORT"),
        ("A://host", "is not NAME://HOST:PORT"),
        ("A://host:65536", "is not NAME://HOST:PORT"),
        ("A://h:1,a://h:2", "names a listener twice"),
        (",".join(f"L{n}://h:{n}" for n in range(LISTENERS_MAX + 1)), f"at most {LISTENERS_MAX} are possible"),
    ],
)
def test_other_text_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as refusal:
        parse_listeners("listeners", text)
    assert refusal.value.field == "listeners"


def test_clients_are_told_the_address_that_was_bound() -> None:
    with bound("A://127.0.0.1:0,B://127.0.0.1:0", "B://kafka.example:0") as settings:
        (a, b), (told_a, told_b) = (
            parse_listeners("", text) for text in (settings.listeners, settings.advertised_listeners)
        )
        assert a.port not in (0, b.port)
        assert told_a == a
        assert told_b == Listener("B", "kafka.example", b.port)
        assert settings.own_listeners == {"A": a.authority, "B": told_b.authority}


def test_an_empty_host_is_told_as_the_name_of_the_machine() -> None:
    with bound("A://:0") as settings:
        (told,) = parse_listeners("", settings.advertised_listeners)
        assert told.host == socket.gethostname()


@pytest.mark.parametrize(
    ("given", "advertised", "reason"),
    [
        ("A://0.0.0.0:0", None, "clients cannot connect to A://0.0.0.0"),
        ("A://127.0.0.1:0", "A://0.0.0.0:9092", "clients cannot connect to A://0.0.0.0:9092"),
        ("A://127.0.0.1:0", "B://h:1", "advertised.listeners names B, which listeners does not"),
    ],
)
def test_addresses_that_clients_cannot_use_are_refused(given: str, advertised: str | None, reason: str) -> None:
    with pytest.raises(Invalid, match=reason), bound(given, advertised):
        pass


def test_a_port_in_use_is_refused_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refusal = pytest.raises(Invalid, match=r"in use by another process: .* another port with --listeners")
        with refusal, bound(f"A://127.0.0.1:{port}"):
            pass


@pytest.fixture
def default_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free port instead of 9092, which something else on this machine may use."""
    port = free_port()
    monkeypatch.setattr(listeners, "DEFAULT_PORT", port)
    return port


def test_without_listeners_it_listens_at_the_default_port_of_the_host(default_port: int) -> None:
    with bound(None) as settings:
        assert settings.listeners == f"PLAINTEXT://127.0.0.1:{default_port}"
        assert settings.own_listeners == {"PLAINTEXT": f"127.0.0.1:{default_port}"}


def test_without_listeners_a_default_port_in_use_is_told_and_does_not_end_the_start(
    default_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", default_port)), bound(None) as settings:
        assert settings.listeners == "none"
        assert settings.own_listeners == {}
    (line,) = caplog.messages
    assert f"cannot reach this broker: 127.0.0.1:{default_port} is in use by another process" in line
    assert "--listeners" in line


def test_a_default_port_in_use_ends_the_start_if_its_address_was_advertised(default_port: int) -> None:
    refusal = pytest.raises(Invalid, match="in use by another process")
    with socket.create_server(("127.0.0.1", default_port)), refusal, bound(None, "PLAINTEXT://kafka.example:9092"):
        pass


@pytest.mark.parametrize(
    ("host", "address", "told"),
    [
        ("127.0.0.1", None, "127.0.0.1"),
        ("127.0.0.1", "http://broker-1:8080", "broker-1"),
        ("0.0.0.0", "http://[fd00::1]:8080", "[fd00::1]"),
        ("0.0.0.0", None, socket.gethostname()),
    ],
)
def test_without_listeners_clients_are_told_a_host_that_they_reach(
    default_port: int, host: str, address: str | None, told: str
) -> None:
    with bound(None, host=host, advertised_address=address) as settings:
        assert settings.own_listeners == {"PLAINTEXT": f"{told}:{default_port}"}


def test_none_is_no_listener() -> None:
    assert [type(door) for door in front_doors(Runtime(), Settings(listeners="none"))] == [HttpDoor]
    assert parse_listeners("listeners", "none") == ()
