"""s2 lite (Rust, SlateDB), a stream service on a bucket, over its REST interface with protobuf bodies.

It listens on every interface of its network namespace. So it is only started in a namespace that has nothing but
loopback; `inside_own_network` runs a program in one.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.loopback_ports import free_port
from infra.s2_lite import S2_LITE, program

from benchmarks.loads.http_socket import HttpSocket
from benchmarks.minio import BUCKET, Minio
from benchmarks.processes import Child, Children, listens, run

BASIN, STREAM = "tidelog-bench", "records"


def missing() -> str:
    """Say why s2 lite cannot run here; empty if it can. Does not build it, because that takes minutes."""
    if S2_LITE.find() is None:
        return f"s2 lite is missing: {S2_LITE.how}"
    absent = [tool for tool in ("unshare", "ip") if shutil.which(tool) is None]
    return f"s2 lite has to be kept in a network namespace, which needs {' and '.join(absent)}" if absent else ""


def inside_own_network(module: str, arguments: Sequence[object]) -> str:
    """Run `python -m module` in a network namespace that has only loopback. Returns its standard output."""
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    script = 'ip link set lo up && exec "$0" "$@"'
    return run([*unshare, "sh", "-c", script, sys.executable, "-m", module, *map(str, arguments)])


class S2Lite:
    """One server on a MinIO bucket with one stream. Refuses to start if there is an interface besides loopback."""

    def __init__(self, children: Children, minio: Minio, folder: Path, flush_ms: int) -> None:
        assert {name for _, name in socket.if_nameindex()} <= {"lo"}, "start s2 lite where only loopback is"
        self._children = children
        self.port = free_port()
        spec = folder / "s2.json"
        spec.write_text(json.dumps({"basins": [{"name": BASIN, "streams": [{"name": STREAM}]}]}))
        command = [str(program()), "lite", "--bucket", BUCKET, "--path", f"s2-{flush_ms}", "--port", str(self.port)]
        env = {**minio.env, "SL8_FLUSH_INTERVAL": f"{flush_ms}ms"}
        self.process: Child = children.start(f"s2-{flush_ms}", [*command, "--init-file", str(spec)], env)
        self.process.wait_until(lambda: listens(self.port) and self._has_stream())

    def stop(self) -> None:
        self._children.stop(self.process)

    def _has_stream(self) -> bool:
        link = HttpSocket(self.port)
        try:
            return link.exchange(request("GET", f"/v1/streams/{STREAM}/records/tail")).status == 200
        finally:
            link.close()


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """Encode a whole request to the basin."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\ns2-basin: {BASIN}\r\nAccept: application/protobuf\r\n"
    if body:
        head += f"Content-Type: application/protobuf\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def append_input(values: Sequence[bytes]) -> bytes:
    """`s2.v1.AppendInput` with these bodies (fields 1.3: bytes)."""
    records = [b"\x1a" + _varint(len(value)) + value for value in values]
    return b"".join(b"\x0a" + _varint(len(record)) + record for record in records)


def records_in(batch: bytes) -> int:
    """The number of records in a `s2.v1.ReadBatch` (field 1). Does not decode the records."""
    count = at = 0
    while at < len(batch):
        tag, at = _read_varint(batch, at)
        length, at = _read_varint(batch, at)
        at += length
        count += tag >> 3 == 1
    return count


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
