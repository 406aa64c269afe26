"""`listeners` and `advertised.listeners`: what they may say, and what clients are told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tidelog.services.doors.kafka_counts import KafkaCounts
from tidelog.services.kafka.kafka_door import KafkaDoor
from tidelog.services.settings.listeners import LISTENERS_MAX, Listener, parse_listeners
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Runtime


@contextmanager
def bound(listeners: str, advertised: str | None = None) -> Iterator[Settings]:
    """The settings after the door has bound its sockets."""
    door = KafkaDoor(Runtime(), KafkaCounts())
    try:
        yield door.bind(replace(Settings(), listeners=listeners, advertised_listeners=advertised))
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
    ("listeners", "advertised", "reason"),
    [
        ("A://0.0.0.0:0", None, "clients cannot connect to A://0.0.0.0"),
        ("A://127.0.0.1:0", "A://0.0.0.0:9092", "clients cannot connect to A://0.0.0.0:9092"),
        ("A://127.0.0.1:0", "B://h:1", "advertised.listeners names B, which listeners does not"),
    ],
)
def test_addresses_that_clients_cannot_use_are_refused(listeners: str, advertised: str | None, reason: str) -> None:
    with pytest.raises(Invalid, match=reason), bound(listeners, advertised):
        pass


def test_a_port_in_use_is_refused_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refusal = pytest.raises(Invalid, match=r"in use by another process: .* another port with --listeners")
        with refusal, bound(f"A://127.0.0.1:{port}"):
            pass
