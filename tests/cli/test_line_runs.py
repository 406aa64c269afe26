"""A run of lines that stops continues exactly where the log ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.cli.conftest import Tidelog
from tests.client.relay import Answered, Relay
from tests.end_to_end.broker_process import BrokerProcess
from tests.end_to_end.steady_load import values_of

from tidelog.client import Admin, Producer, ProducerOptions
from tidelog.services.cli import line_run
from tidelog.services.cli.input_lines import Lines, line_arrays
from tidelog.services.cli.line_records import LineShape, key_finder
from tidelog.services.cli.line_run import LineRules, LineRun, RunName, Tally
from tidelog.storage.errors import Invalid, Unavailable

RUN_ID = "0123456789abcdef" * 2
OPTIONS = ProducerOptions(request_bytes=2_000, producer_id=f"cli.{RUN_ID}")
ANOTHER = ProducerOptions(request_bytes=2_000)
PARTITIONS = 3
LINES = [b"%d:%d" % (n % 17, n) for n in range(3_000)]
BLOCK_LINES = 100

KEYLESS = LineRules(LineShape())
KEYED = LineRules(LineShape(key_finder(":"), True))
SOME_KEYS = LineRules(LineShape(lambda line: (line[:2] if line.endswith(b"7") else None, line)))


@pytest.fixture(autouse=True)
def small_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_run, "PLACE_BYTES", 700)


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z0-9]", "-", request.node.name)
    with Admin(broker.url) as admin:
        admin.create_topic(name, PARTITIONS)
    return name


@contextmanager
def running(
    broker: str, topic: str, rules: LineRules, options: ProducerOptions = OPTIONS, **given: object
) -> Iterator[LineRun]:
    tally = Tally()
    with Producer(broker, topic, options, on_delivery=tally.delivered, on_refusal=tally.refuse) as producer:
        yield LineRun(producer, tally, rules, **{"random_id": RUN_ID, **given})  # type: ignore[arg-type]


def send_all(run: LineRun, lines: list[bytes] = LINES) -> None:
    with run.saying_where_it_stops():
        for array in arrays(lines):
            run.send(array)
        run.flush()


def arrays(lines: list[bytes]) -> Iterator[Lines]:
    for start in range(0, len(lines), BLOCK_LINES):
        block = b"".join(line + b"\n" for line in lines[start : start + BLOCK_LINES])
        yield from line_arrays(iter([block]))


def in_the_log(broker: str, topic: str) -> list[list[bytes | None]]:
    return [values_of(broker, topic, partition) for partition in range(PARTITIONS)]


def assert_each_once_in_order(broker: str, topic: str, expected: list[bytes]) -> None:
    found = in_the_log(broker, topic)
    assert sorted(value or b"" for values in found for value in values) == sorted(expected)
    places = {line: n for n, line in enumerate(expected)}
    for values in found:
        assert [places[value or b""] for value in values] == sorted(places[value or b""] for value in values)


def losing_from(request: int) -> Callable[[Answered], bool]:
    """Loses the answer of every produce from that one on."""
    seen: list[Answered] = []

    def lose(answered: Answered) -> bool:
        if "/records" in answered.path and answered.status == 200:
            seen.append(answered)
        return len(seen) > request

    return lose


@pytest.mark.parametrize("rules", [KEYLESS, KEYED, SOME_KEYS], ids=["keyless", "keyed", "some-keys"])
def test_a_run_of_unknown_outcome_is_resumed_without_a_gap_or_a_double(
    broker: BrokerProcess, topic: str, rules: LineRules
) -> None:
    options = replace(OPTIONS, delivery_timeout_s=0.3)
    with (
        Relay(broker.url, lose=losing_from(8)).running() as relay,
        pytest.raises(Unavailable) as stopped,
        running(relay.url, topic, rules, options) as run,
    ):
        send_all(run)
    (told,) = [note for note in stopped.value.__notes__ if "--resume " in note]
    name = RunName.parsed(told.rpartition(" ")[2])
    before = sum(map(len, in_the_log(broker.url, topic)))
    assert 0 < name.records < before < len(LINES), "some records are there whose answer was lost"
    with running(broker.url, topic, rules) as run:
        run.resume(name)
        send_all(run)
        assert run.records == len(LINES)
    values = LINES if rules is not KEYED else [line.partition(b":")[2] for line in LINES]
    assert_each_once_in_order(broker.url, topic, values)


def test_a_wrong_line_stops_behind_those_before_it(broker: BrokerProcess, topic: str) -> None:
    lines = [*LINES[:1_249], b"no key", *LINES[1_250:]]
    with (
        pytest.raises(Invalid, match="line 1,250 is wrong: it has no key") as stopped,
        running(broker.url, topic, KEYED) as run,
    ):
        send_all(run, lines)
    assert stopped.value.__notes__[-1].startswith(f"1,249 records are in {topic}. ")
    assert stopped.value.__notes__[-1].endswith("--resume-from-line 1250")
    with running(broker.url, topic, KEYED, ANOTHER, first_line=1_250) as run:
        send_all(run, LINES)
    assert_each_once_in_order(broker.url, topic, [line.partition(b":")[2] for line in LINES])


def test_a_refused_line_is_named_and_the_rest_continues_behind_it(broker: BrokerProcess, topic: str) -> None:
    lines = [*LINES[:449], bytes(2_000_000).replace(b"\0", b"x"), *LINES[450:]]
    with (
        pytest.raises(Invalid, match=r"line 450 was refused and is not in the log: .*max\.message\.bytes") as stopped,
        running(broker.url, topic, KEYLESS) as run,
    ):
        send_all(run, lines)
    note = next(note for note in stopped.value.__notes__ if "--resume-from-line" in note)
    with running(broker.url, topic, KEYLESS, ANOTHER, first_line=int(note.rpartition(" ")[2])) as run:
        send_all(run, lines)
    assert_each_once_in_order(broker.url, topic, [*LINES[:449], *LINES[450:]])


def test_without_sequences_it_says_that_continuing_may_repeat(broker: BrokerProcess, topic: str) -> None:
    options = replace(OPTIONS, acks="1", producer_id=None, delivery_timeout_s=0.3)
    with (
        Relay(broker.url, lose=losing_from(2)).running() as relay,
        pytest.raises(Unavailable) as stopped,
        running(relay.url, topic, KEYLESS, options, random_id=None) as run,
    ):
        send_all(run)
    assert "may repeat records" in stopped.value.__notes__[-1]


def test_a_run_that_the_broker_has_forgotten_is_not_resumed(broker: BrokerProcess, topic: str) -> None:
    with running(broker.url, topic, KEYLESS) as run, pytest.raises(Invalid, match="has forgotten the run"):
        run.resume(RunName(1, PARTITIONS, 5, RUN_ID))
    with running(broker.url, topic, KEYLESS) as run, pytest.raises(Invalid, match="had 4 partitions and has 3"):
        run.resume(RunName(1, 4, 5, RUN_ID))


@pytest.mark.parametrize("text", ["", "1", "1.2.3.xyz", "a.1.1." + RUN_ID])
def test_an_invalid_run_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="--resume takes"):
        RunName.parsed(text)


def test_the_command_says_the_line_and_continues_from_there(tidelog: Tidelog) -> None:
    stopped = tidelog("topic", "produce", "stopped", "-k", ":", stdin=b"a:1\nb:2\nwrong\nc:4\n")
    assert stopped.returncode == 2
    assert b"line 3 is wrong" in stopped.stderr
    assert b"2 records are in stopped. To continue with the same input: --resume-from-line 3" in stopped.stderr
    arguments = ["-k", ":", "--resume-from-line", "3", "--allow-missing-key"]
    went_on = tidelog("topic", "produce", "stopped", *arguments, stdin=b"a:1\nb:2\nwrong\nc:4\n")
    assert (went_on.returncode, went_on.stderr) == (0, b"tidelog: 2 records to stopped\n")
    assert tidelog("topic", "consume", "stopped", "-e", "-f", "%k=%v;").stdout == b"a=1;b=2;=wrong;c=4;"
