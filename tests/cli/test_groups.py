"""`tidelog group`, and `topic consume --group`: what was printed is committed, and nothing else is."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Tidelog
from tests.cli.test_progress import everything_from
from tests.end_to_end.broker_process import BrokerProcess, wait_until
from tests.end_to_end.forked_tidelog import ForkedTidelog

from tidelog.services.cli.group import partitions_text, time_ago_text
from tidelog.wire.groups import TopicPartitions

PARTITIONS = 2


@pytest.fixture
def topic(tidelog: Tidelog, request: pytest.FixtureRequest) -> str:
    """A topic whose two partitions hold the lines 0 to 99 each."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)
    tidelog("topic", "create", name, "-p", str(PARTITIONS))
    for partition in range(PARTITIONS):
        lines = b"".join(b"%d\n" % n for n in range(100))
        assert tidelog("topic", "produce", name, "-p", str(partition), stdin=lines).returncode == 0
    return name


@contextmanager
def member(broker: BrokerProcess, topic: str, group: str, out: Path, *more: str) -> Iterator[ForkedTidelog]:
    command = ["topic", "consume", topic, "--group", group, "-f", "%p %v\\n", "--broker", broker.url, *more]
    with out.open("wb") as output, ForkedTidelog(command, stdout=output, stderr=subprocess.PIPE) as consuming:
        try:
            yield consuming
        finally:
            consuming.kill()


def lines_of(out: Path) -> list[str]:
    return out.read_text().splitlines()


def everything() -> list[str]:
    return sorted(f"{partition} {n}" for partition in range(PARTITIONS) for n in range(100))


def described(tidelog: Tidelog, group: str) -> dict[str, Any]:
    answer = tidelog("group", "describe", group, "--json")
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_commits_what_was_printed_and_the_next_one_goes_on(
    tidelog: Tidelog, broker: BrokerProcess, topic: str, tmp_path: Path, how: signal.Signals, code: int
) -> None:
    with member(broker, topic, topic, tmp_path / "one") as consuming:
        wait_until(lambda: len(lines_of(tmp_path / "one")) == 200, 60.0)
        consuming.send_signal(how)
        assert consuming.wait(30) == code
    assert sorted(lines_of(tmp_path / "one")) == everything()
    found = described(tidelog, topic)
    assert (found["lag"]["lag"], found["group"]["members"]) == (0, [])
    tidelog("topic", "produce", topic, "-p", "1", stdin=b"new\n")
    again = tidelog("topic", "consume", topic, "--group", topic, "-e", "-f", "%p %v\\n")
    assert (again.returncode, again.stdout) == (0, b"1 new\n")


def test_exactly_the_printed_records_are_committed(tidelog: Tidelog, topic: str) -> None:
    printed: list[str] = []
    for count in (7, 150, 0):
        ended = tidelog("topic", "consume", topic, "-g", topic, "-n", str(count), "-f", "%p %v\\n")
        assert ended.returncode == 0, ended.stderr
        assert len(ended.stdout.splitlines()) == count
        printed += ended.stdout.decode().splitlines()
        committed = {part["partition"]: part["committed"] for part in described(tidelog, topic)["lag"]["partitions"]}
        for partition in range(PARTITIONS):  # the group has no offset of a partition that no member has read
            assert committed.get(partition, 0) == sum(line.startswith(f"{partition} ") for line in printed)
    rest = tidelog("topic", "consume", topic, "-g", topic, "-e", "-f", "%p %v\\n").stdout.decode().splitlines()
    assert sorted(printed + rest) == everything()


def test_a_member_that_dies_has_committed_no_more_than_it_printed(
    tidelog: Tidelog, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with member(broker, topic, topic, tmp_path / "one") as consuming:
        wait_until(lambda: len(lines_of(tmp_path / "one")) > 0, 60.0)
        consuming.kill()
        consuming.wait()
    printed = lines_of(tmp_path / "one")
    for part in described(tidelog, topic)["lag"]["partitions"]:
        assert (part["committed"] or 0) <= sum(line.startswith(f"{part['partition']} ") for line in printed)


def test_members_share_the_partitions_and_are_shown(
    tidelog: Tidelog, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with (
        member(broker, topic, topic, tmp_path / "one"),
        member(broker, topic, topic, tmp_path / "two"),
    ):
        wait_until(lambda: _shared(tidelog, topic), 60.0)
        table = tidelog("group", "members", topic).stdout.decode().splitlines()
        assert [line.split()[-1] for line in sorted(table[1:], key=lambda line: line.split()[-1])] == [
            f"{topic}:0",
            f"{topic}:1",
        ]
        wait_until(lambda: described(tidelog, topic)["lag"]["lag"] == 0, 60.0)
        shown = tidelog("group", "describe", topic).stdout.decode()
        assert re.search(r"^members +2$", shown, re.MULTILINE)
        assert re.search(rf"^{topic} +1 +100 +0 +100 +0 +0s +\S+", shown, re.MULTILINE)
        refused = tidelog("group", "delete", topic, "--yes")
        assert (refused.returncode, refused.stdout) == (5, b"")
        assert tidelog("group", "seek", topic, "--to", "earliest", "--yes").returncode == 5


def _shared(tidelog: Tidelog, group: str) -> bool:
    answer = tidelog("group", "members", group, "--json")
    members = json.loads(answer.stdout) if answer.returncode == 0 else []
    return len(members) == 2 and all(one["assignment"] for one in members)


def test_only_matching_records_are_printed_and_all_are_committed(tidelog: Tidelog) -> None:
    tidelog("topic", "produce", "filtered", stdin=b'{"n":1}\nno json\n{"n":2}\n')
    ended = tidelog("topic", "consume", "filtered", "-g", "filter", "-e", "--where", "value.n > 1")
    assert (ended.returncode, ended.stdout) == (0, b'{"n":2}\n')
    assert b"no JSON: 1" in ended.stderr
    assert described(tidelog, "filter")["lag"]["lag"] == 0


def test_a_group_is_sought_with_a_preview(tidelog: Tidelog, topic: str) -> None:
    tidelog("topic", "consume", topic, "-g", topic, "-e")
    preview = tidelog("group", "seek", topic, "--to", "-10", "--dry-run")
    assert preview.returncode == 0, preview.stderr
    assert [line.split() for line in preview.stdout.decode().splitlines()[1:]] == [
        [topic, str(partition), "100", "90", "-10"] for partition in range(PARTITIONS)
    ]
    assert b"nothing was changed" in preview.stderr
    unsure = tidelog("group", "seek", topic, "--to", "earliest")
    assert (unsure.returncode, b"--yes" in unsure.stderr) == (2, True)
    assert described(tidelog, topic)["lag"]["lag"] == 0
    moved = tidelog("group", "seek", topic, "--to", "40", "--topic", f"{topic}:1", "--yes", "--json")
    assert json.loads(moved.stdout)["partitions"] == [{"topic": topic, "partition": 1, "before": 100, "after": 40}]
    assert described(tidelog, topic)["lag"]["lag"] == 60
    for wrong in (["--to", "soon"], ["--to", "1", "--topic", "a:x"], ["--to", "1", "--topic", ":1"]):
        assert tidelog("group", "seek", topic, *wrong, "--yes").returncode == 2


@pytest.mark.parametrize(("answer", "code", "lag"), [(b"y\n", 0, 200), (b"n\n", 1, 0)])
def test_on_a_terminal_the_preview_is_shown_first(
    tidelog: Tidelog, broker: BrokerProcess, topic: str, answer: bytes, code: int, lag: int
) -> None:
    tidelog("topic", "consume", topic, "-g", topic, "-e")
    ours, theirs = pty.openpty()
    command = ["group", "seek", topic, "--to", "earliest", "--broker", broker.url]
    with ForkedTidelog(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as seeking:
        os.close(theirs)
        os.write(ours, answer)
        shown = everything_from(ours)
        assert seeking.wait(60) == code
    assert b"CHANGE" in shown
    assert b"-100" in shown
    assert described(tidelog, topic)["lag"]["lag"] == lag


def test_groups_are_listed_and_deleted(tidelog: Tidelog, topic: str) -> None:
    tidelog("topic", "consume", topic, "-g", topic, "-n", "1")
    assert topic in {one["group"] for one in json.loads(tidelog("group", "list", "--json").stdout)}
    assert topic.encode() in tidelog("group", "list").stdout
    assert tidelog("group", "delete", topic).returncode == 2
    assert tidelog("group", "delete", topic, "--yes").stdout == f"deleted {topic}\n".encode()
    assert tidelog("group", "delete", topic, "--yes").returncode == 4
    assert json.loads(tidelog("group", "delete", topic, "-y", "--if-exists", "--json").stdout) == {"deleted": []}
    for call in ("describe", "members"):
        assert tidelog("group", call, topic).returncode == 4


def test_a_member_cannot_choose_partitions(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("topic", "consume", topic, "-g", topic, "-p", "0")
    assert (ended.returncode, b"leave -p out" in ended.stderr) == (2, True)


def test_texts_of_partitions_and_times() -> None:
    assert partitions_text(
        [TopicPartitions("a", (3, 0, 1, 7)), TopicPartitions("b", ()), TopicPartitions("c", (2,))]
    ) == ("a:0-1,3,7 c:2")
    times = {None: None, 0: "0s", 999: "0s", 61_000: "1m 1s", 7_500_000: "2h 5m", 90_061_000: "1d 1h"}
    assert {one: time_ago_text(one) for one in times} == times
