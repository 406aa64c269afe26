"""Any bytes that are produced come back byte for byte."""

import gzip
import os
import random
from pathlib import Path

from tests.end_to_end.broker_process import BrokerProcess, run_tidelog

LINE_BYTES_MAX = 1_048_500  # with the default max.message.bytes


def _random_lines(seed: int) -> bytes:
    draw = random.Random(seed)
    return b"".join(draw.randbytes(draw.randrange(200)).replace(b"\n", b"\r") + b"\n" for _ in range(2_000))


AWKWARD = {
    "crlf": b"one\r\ntwo\r\n\r\n",
    "empty lines": b"\n\n\nx\n\n",
    "invalid utf-8": b"\xff\xfe\x00\n\xc3\x28\n\xed\xa0\x80\n",
    "nul bytes": b"\0\0\n\0\n",
    "one line": b"x\n",
    "lines near the limit": b"a" * LINE_BYTES_MAX + b"\n" + b"b" * LINE_BYTES_MAX + b"\nc\n",
    "random bytes": _random_lines(1),
    "many short lines": b"".join(b"%d\n" % n for n in range(200_000)),
}


def round_trip(broker: BrokerProcess, topic: str, data: bytes) -> bytes:
    produced = run_tidelog(["topic", "produce", topic], broker=broker.url, stdin=data)
    assert produced.returncode == 0, produced.stderr
    consumed = run_tidelog(["topic", "consume", topic, "-o", "start", "-e"], broker=broker.url)
    assert consumed.returncode == 0, consumed.stderr
    return consumed.stdout


def real_logs() -> dict[str, bytes]:
    """The ``*.gz`` files of the folder in ``TIDELOG_REAL_LOGS``, if it is set, each with a newline at its end."""
    folder = os.environ.get("TIDELOG_REAL_LOGS")
    found = sorted(Path(folder).glob("*.gz")) if folder else []
    logs = {log.name: gzip.decompress(log.read_bytes()) for log in found}
    return {name: data if data.endswith(b"\n") else data + b"\n" for name, data in logs.items()}


def test_awkward_logs_and_real_ones_come_back_byte_for_byte(shared_broker: BrokerProcess) -> None:
    for number, (name, data) in enumerate({**AWKWARD, **real_logs()}.items()):
        assert round_trip(shared_broker, f"topic-{number}", data) == data, name


def test_a_last_line_without_a_newline_is_a_record_and_comes_back_with_one(shared_broker: BrokerProcess) -> None:
    assert round_trip(shared_broker, "unfinished", b"one\ntwo") == b"one\ntwo\n"


def test_nothing_produced_is_nothing_consumed(shared_broker: BrokerProcess) -> None:
    assert round_trip(shared_broker, "nothing", b"") == b""


def test_round_trip_data_outlives_the_broker(shared_broker: BrokerProcess) -> None:
    data = AWKWARD["random bytes"]
    assert round_trip(shared_broker, "kept", data) == data
    shared_broker.kill()
    shared_broker.start()
    consumed = run_tidelog(["topic", "consume", "kept", "-o", "start", "-e"], broker=shared_broker.url)
    assert consumed.stdout == data
