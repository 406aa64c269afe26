"""A read of unavailable records is an error that says why and what to do; with failOnDataLoss off, the other records
are returned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.serving import ARCHIVES, KEEPS_HOT, Serving, records, serving

from tidelog.spark_connector import DataLoss, read
from tidelog.spark_connector.reads import broker_connection
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.hot_reader import HotReader
from tidelog.spark_connector.reads.slices import HotSlice
from tidelog.storage.errors import NotFound, Unavailable

pytestmark = pytest.mark.spark

Reader = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Topic web: offsets 0 to 99, hot."""
    folder = tmp_path_factory.mktemp("broker")
    with serving(folder, f"file:{folder}/store", KEEPS_HOT) as serving_broker:
        serving_broker.create_topic("web", 1)
        serving_broker.produce("web", 0, records(0, 0, 100))
        yield serving_broker


@pytest.fixture(params=["data source", "native"])
def reader(request: pytest.FixtureRequest, spark: SparkSession, broker: Serving) -> Reader:
    if request.param == "native":
        return lambda **options: read(spark, **{"broker": broker.url, **options})
    return lambda **options: spark.read.format("tidelog").options(**{"broker": broker.url, **options}).load()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "nowhere"}, "there is no topic .nowhere"),
        ({"assign": '{"web": [4]}'}, "topic web has no partition 4: it has 1, from 0"),
        ({"subscribe": "web", "startingOffsets": '{"web": {"1": 0}}'}, "startingOffsets lacks web-0"),
        (
            {"subscribe": "web", "startingOffsets": '{"web": {"0": 101}}'},
            r"web-0: starting offset 101 is after ending offset 100",
        ),
        ({"subscribe": "web", "endingOffsets": '{"web": {"0": 101}}'}, r"web-0: .*\[0, 101\).* holds \[0, 100\)"),
        (
            {"subscribe": "web", "startingOffsets": '{"web": {"0": 50}}', "endingOffsets": '{"web": {"0": 20}}'},
            "starting offset 50 is after ending offset 20",
        ),
        (
            {"subscribe": "web", "startOffsets": "0"},
            r"unknown option of the tidelog source: start[oO]ffsets \(did you mean startingOffsets\?\); it has",
        ),
    ],
)
def test_a_refusal_says_what_was_wrong(reader: Reader, options: dict[str, str], words: str) -> None:
    with pytest.raises(Exception, match=words):
        reader(**options).count()


def test_without_a_broker_the_data_source_says_how_to_name_one(spark: SparkSession) -> None:
    source = spark.read.format("tidelog").options(broker="http://127.0.0.1:1", subscribe="web")

    with pytest.raises(Exception, match=r"no broker answers at http://127.0.0.1:1 .*'broker'"):
        source.load().count()


def test_with_data_loss_allowed_the_remaining_records_are_read(reader: Reader) -> None:
    frame = reader(subscribe="web", endingOffsets='{"web": {"0": 250}}', failOnDataLoss=False)

    assert frame.count() == 100


def test_a_vanished_segment_is_an_error_unless_data_loss_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path, f"file:{tmp_path}/store", ARCHIVES) as broker:
        broker.create_topic("web", 1)
        for start in (0, 100):
            broker.produce("web", 0, records(0, start, start + 100))
            broker.wait_until_archived("web")
        log = broker.log("web")
        source = spark.read.format("tidelog").options(broker=broker.url, subscribe="web")
        native = read(spark, broker=broker.url, subscribe="web")
        lenient = read(spark, broker=broker.url, subscribe="web", failOnDataLoss=False)
        first = log.segments[0]
        (Path(unquote(urlsplit(log.store).path)) / first.key).unlink()
        left = 200 - first.records

        with pytest.raises(Exception, match=rf"offsets of web are gone, by partition 0: \[0, {first.records}\)"):
            source.load().count()
        with pytest.raises(Exception, match=r"(?s)FileNotFound|does not exist|FAILED_READ_FILE"):
            native.select("value").collect()
        assert source.option("failOnDataLoss", "false").load().count() == left
        assert len(lenient.select("value").collect()) == left


def test_a_damaged_segment_is_an_error_and_never_other_records(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path, f"file:{tmp_path}/store", ARCHIVES) as broker:
        broker.create_topic("web", 1)
        broker.produce("web", 0, records(0, 0, 1_000))
        broker.wait_until_archived("web")
        log = broker.log("web")
        segment = Path(unquote(urlsplit(log.store).path)) / log.segments[0].key
        place = _inside_the_values(segment)
        body = bytearray(segment.read_bytes())
        body[place] ^= 0x10
        segment.write_bytes(body)

        with pytest.raises(Exception, match=rf"Corrupt: {log.segments[0].key}: row group 0 does not have its"):
            spark.read.format("tidelog").options(broker=broker.url, subscribe="web").load().collect()
        with pytest.raises(Exception, match="CRC checksum verification failed"):
            read(spark, broker=broker.url, subscribe="web").select("value").collect()


def _inside_the_values(segment: Path) -> int:
    """A place in the pages of the column value, far from their headers."""
    metadata = pq.read_metadata(segment)
    column = metadata.row_group(0).column(metadata.schema.names.index("value"))
    return int(column.data_page_offset + column.total_compressed_size // 2)


def test_a_hot_slice_beyond_the_log_is_data_loss_that_names_the_range(broker: Serving) -> None:
    with BrokerConnection(broker.url) as connection:
        topic_id = connection.topic("web").topic_id
        strict = HotReader(connection, "web", topic_id, fail_on_data_loss=True)
        lenient = HotReader(connection, "web", topic_id, fail_on_data_loss=False)

        with pytest.raises(DataLoss, match=r"web-0: .*\[150, 200\).* holds \[0, 100\)"):
            list(strict.read(HotSlice(0, 150, 200), ["offset"]))
        assert list(lenient.read(HotSlice(0, 150, 200), ["offset"])) == []


def test_a_topic_created_again_under_its_name_is_not_taken_for_the_old_one(broker: Serving) -> None:
    with BrokerConnection(broker.url) as connection:
        hot = HotReader(connection, "web", "0" * 32, fail_on_data_loss=False)

        with pytest.raises(NotFound, match="topic web was deleted and created again during the read"):
            list(hot.read(HotSlice(0, 0, 100), ["offset"]))


class Busy(BaseHTTPRequestHandler):
    """Answers 503 twice, then an empty list of topics."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        busy = type(self).asked <= 2
        body = b'{"detail": "come back"}' if busy else b'{"topics": []}'
        self.send_response(503 if busy else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_a_broker_that_says_later_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_connection, "PAUSE_S", 0.001)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with BrokerConnection(f"http://127.0.0.1:{server.server_port}") as connection:
            assert connection.topics() == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert Busy.asked == 3


def test_a_broker_that_does_not_answer_is_given_up_after_a_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(broker_connection, "pause", waits.append)

    with BrokerConnection("http://127.0.0.1:1") as connection, pytest.raises(Unavailable, match="tidelog serve"):
        connection.topics()

    assert len(waits) == broker_connection.ATTEMPTS - 1
    assert waits == sorted(waits)
