"""A client trusts the authority that it is given, proves who it is, and sends no password unencrypted."""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.components.certificates import Authority

from tidelog.client import Admin, BrokerAccess
from tidelog.storage.errors import Invalid

TOPICS = b'{"topics": []}'


class TlsProxy(HTTPServer):
    """Answers like a broker without topics, and keeps the credentials that it got."""

    seen: list[str | None]


class Answering(BaseHTTPRequestHandler):
    server: TlsProxy

    def do_GET(self) -> None:
        self.server.seen.append(self.headers["authorization"])
        self.send_response(200)
        self.send_header("content-length", str(len(TOPICS)))
        self.end_headers()
        self.wfile.write(TOPICS)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def proxy(authority: Authority) -> Iterator[TlsProxy]:
    server = TlsProxy(("127.0.0.1", 0), Answering)
    server.seen = []
    certificate = authority.issue("broker")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate.certificate, certificate.key)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield server
    server.shutdown()
    serving.join()
    server.server_close()


def address_of(proxy: TlsProxy) -> str:
    return f"https://127.0.0.1:{proxy.server_port}"


def test_the_given_authority_is_trusted_and_the_user_is_told(proxy: TlsProxy, authority: Authority) -> None:
    access = BrokerAccess(address_of(proxy), ca_file=str(authority.file), user="ann", password="pä:ss")
    with Admin(access) as admin:
        assert admin.topics() == ()
    (credentials,) = proxy.seen
    assert credentials is not None
    assert base64.b64decode(credentials.removeprefix("Basic ")).decode() == "ann:pä:ss"
    assert "pä:ss" not in repr(access)


def test_an_unknown_authority_is_not_trusted(proxy: TlsProxy, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    access = BrokerAccess(address_of(proxy), ca_file=str(other.file))
    with Admin(access, connect_timeout_s=0.2) as admin:
        health = admin.health()
    assert not health.alive
    assert "CERTIFICATE_VERIFY_FAILED" in health.reason


@pytest.mark.parametrize(
    ("access", "told"),
    [
        ({"ca_file": "no-such.pem"}, "no-such.pem cannot be read"),
        ({"ca_file": __file__}, "holds no certificate"),
        ({"user": "ann"}, "TIDELOG_PASSWORD"),
        ({"password": "p"}, "the user is missing"),
        ({"user": "an:n", "password": "p"}, "no colon"),
        ({"user": "ann", "password": "p", "addresses": "http://10.0.0.7:8080"}, "unencrypted"),
        ({"user": "ann", "password": "p", "addresses": "https://a:1,http://b:1"}, "http://b:1"),
    ],
)
def test_a_wrong_access_is_refused(access: dict[str, str], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        BrokerAccess(**{"addresses": "http://127.0.0.1:8080", **access})


def test_another_broker_gets_the_password_only_if_the_way_is_encrypted() -> None:
    access = BrokerAccess("https://a:1", user="ann", password="p")
    assert access.at("https://b:1") == BrokerAccess("https://b:1", user="ann", password="p")
    assert access.at("http://b:1") == BrokerAccess("http://b:1")
