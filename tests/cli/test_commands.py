"""The commands as a person or a script uses them: what they print, where, and their exit codes."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from infra.loopback_ports import free_port
from tests.attempts import attempts, within
from tests.cli.conftest import Tidelog
from tests.end_to_end.broker_process import TIDELOG, BrokerProcess, run_tidelog, wait_until
from tests.end_to_end.forked_tidelog import ForkedTidelog

from tidelog.services.cli import exit_codes
from tidelog.services.cli.main import app

HELP_S_MAX = 0.5
DOCS = Path(__file__).parents[2] / "docs"


def test_topics_are_created_listed_described_altered_and_deleted(tidelog: Tidelog) -> None:
    created = tidelog("topic", "create", "t1", "-p", "2", "-c", "retention.ms=7d", "-c", "segment.bytes=2MiB", "--json")
    configs = json.loads(created.stdout)["configs"]
    assert (str(configs["retention.ms"]), str(configs["segment.bytes"])) == ("604800000", "2097152")
    again = tidelog("topic", "create", "t1")
    assert (again.returncode, again.stdout) == (5, b"")
    assert tidelog("topic", "create", "t1", "--if-not-exists").returncode == 0
    listed = json.loads(tidelog("topic", "list", "--json").stdout)
    assert {topic["name"]: len(topic["partitions"]) for topic in listed}["t1"] == 2
    assert b"t1 " in tidelog("topic", "list").stdout
    altered = json.loads(tidelog("topic", "alter", "t1", "-p", "3", "--set", "segment.bytes=2000000", "--json").stdout)
    assert (len(altered["partitions"]), str(altered["configs"]["segment.bytes"])) == (3, "2000000")
    assert tidelog("topic", "alter", "t1", "--unset", "retention.ms").returncode == 0
    assert b"604800000" in tidelog("topic", "describe", "t1").stdout
    assert tidelog("topic", "delete", "t1", "--yes").returncode == 0
    assert tidelog("topic", "delete", "t1", "--yes").returncode == 4
    again = tidelog("topic", "delete", "t1", "--yes", "--if-exists", "--json")
    assert (again.returncode, json.loads(again.stdout)) == (0, {"deleted": []})
    gone = tidelog("topic", "describe", "t1")
    assert (gone.returncode, gone.stdout) == (4, b"")
    assert b"no topic 't1'" in gone.stderr


def test_records_below_an_offset_are_deleted(tidelog: Tidelog) -> None:
    assert tidelog("topic", "produce", "cut", stdin=b"a\nb\nc\n").returncode == 0
    unsure = tidelog("topic", "delete-records", "cut", "0", "2")
    assert (unsure.returncode, unsure.stdout) == (2, b"")
    assert b"--yes" in unsure.stderr
    assert tidelog("topic", "delete-records", "cut", "0", "2", "-y").stdout == b"cut/0 begins at offset 2\n"
    assert tidelog("topic", "consume", "cut", "-o", "start", "-e").stdout == b"c\n"
    told = json.loads(tidelog("topic", "delete-records", "cut", "0", "latest", "--json", "-y").stdout)
    assert told == {"topic": "cut", "partition": 0, "log_start_offset": 3}
    beyond = tidelog("topic", "delete-records", "cut", "0", "4", "-y")
    assert (beyond.returncode, beyond.stdout) == (2, b"")
    assert b"3 to 3" in beyond.stderr
    assert tidelog("topic", "delete-records", "cut", "0", "soon").returncode == 2


def test_keys_formats_counts_and_positions(tidelog: Tidelog) -> None:
    assert tidelog("topic", "produce", "keyed", "-k", ":", stdin=b"a:1\nb:2\nc:3\n").returncode == 0
    printed = tidelog("topic", "consume", "keyed", "-e", "-f", "%t %p %o %k %v %K %S\\n")
    assert printed.stdout == b"keyed 0 0 a 1 1 1\nkeyed 0 1 b 2 1 1\nkeyed 0 2 c 3 1 1\n"
    assert tidelog("topic", "consume", "keyed", "-o", "-2", "-n", "1").stdout == b"2\n"
    assert tidelog("topic", "consume", "keyed", "-o", "1", "-e").stdout == b"2\n3\n"
    assert tidelog("topic", "consume", "keyed", "-o", "end", "-e").stdout == b""
    assert tidelog("topic", "consume", "keyed", "-n", "0").stdout == b""


def test_a_position_is_shown_for_every_partition(tidelog: Tidelog) -> None:
    assert tidelog("topic", "create", "placed", "-p", "2").returncode == 0
    for at in ("2026-01-31T12:00:00Z", "2026-01-31T12:00:01Z"):
        assert tidelog("topic", "produce", "placed", "-p", "1", "-T", at, stdin=b"a\nb\n").returncode == 0
    shown = tidelog("topic", "offsets", "placed", "--at", "@2026-01-31T12:00:01Z", "--json").stdout
    partitions = [{"partition": 0, "offset": 0}, {"partition": 1, "offset": 2}]
    assert json.loads(shown) == {"topic": "placed", "partitions": partitions}
    assert [line.split() for line in tidelog("topic", "offsets", "placed").stdout.splitlines()[1:]] == [
        [b"0", b"0"],
        [b"1", b"4"],
    ]
    assert tidelog("topic", "offsets", "placed", "--at", "start").stdout.split()[-1] == b"0"
    assert tidelog("topic", "offsets", "placed", "--at", "soon").returncode == 2
    assert tidelog("topic", "offsets", "absent").returncode == 4


def test_json_tells_bytes_that_are_not_text(tidelog: Tidelog) -> None:
    assert tidelog("topic", "produce", "bytes", stdin=b"\xff\ntext\n").returncode == 0
    lines = [json.loads(line) for line in tidelog("topic", "consume", "bytes", "-e", "--json").stdout.splitlines()]
    assert [line["value"] for line in lines] == [{"base64": "/w=="}, "text"]
    assert [line["offset"] for line in lines] == [0, 1]


def test_files_are_read_in_their_order_to_the_partition_named(tidelog: Tidelog, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{name}\n")
    tidelog("topic", "create", "files", "-p", "2")
    arguments = ["-f", str(tmp_path / "two"), "-f", str(tmp_path / "one"), "-p", "1", "--json"]
    produced = tidelog("topic", "produce", "files", *arguments)
    assert json.loads(produced.stdout) == {"topic": "files", "records": 2}
    assert tidelog("topic", "consume", "files", "-e", "-p", "1").stdout == b"two\none\n"
    missing = tidelog("topic", "produce", "files", "-f", str(tmp_path / "three"))
    assert missing.returncode == 2
    assert b"three" in missing.stderr


def test_the_cluster_tells_its_health_and_shards(tidelog: Tidelog, broker: BrokerProcess) -> None:
    assert tidelog("cluster", "health").stdout == f"{broker.url} is ready\n".encode()
    info = json.loads(tidelog("cluster", "info", "--json").stdout)
    assert [shard["shard"] for shard in info["shards"]] == [0, 1, 2, 3]
    assert b"WAL FLOOR" in tidelog("cluster", "info").stdout


def test_the_bucket_is_listed_and_verified_without_a_broker(tidelog: Tidelog, store: Path) -> None:
    tidelog("topic", "produce", "listed", stdin=b"x\n")
    listed = run_tidelog(["bucket", "ls", "wal/", "--json", "--store", f"file:{store}"])
    keys = [json.loads(line)["key"] for line in listed.stdout.splitlines()]
    assert keys
    assert all(key.startswith("wal/") for key in keys)
    verified = run_tidelog(["bucket", "verify", "--deep", "--store", f"file:{store}"])
    assert verified.returncode == 0
    assert b"sound" in verified.stderr


def test_a_damaged_bucket_ends_verify_with_6(tidelog: Tidelog, store: Path, tmp_path: Path) -> None:
    tidelog("topic", "produce", "damaged", stdin=b"x\n" * 100)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", store, copy], check=True)
    holding = [*copy.glob("wal/*/*.parquet"), *copy.glob("topics/*/*/*/*.parquet")]
    for path in holding:  # only the archiver knows which of them still count
        data = bytearray(path.read_bytes())
        data[40] ^= 0xFF
        path.write_bytes(data)
    verified = run_tidelog(["bucket", "verify", "--deep", "--store", f"file:{copy}"])
    assert verified.returncode == 6
    assert any(path.name.encode() in verified.stdout for path in holding)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["topic", "consume", "no-such"], 4, b"no-such"),
        (["topic", "consume", "no-such", "-o", "soon"], 2, b"start, end, N, -N or @time"),
        (["topic", "create", "no spaces"], 2, b"not a topic name"),
        (["topic", "create", "c", "-c", "colour=red"], 2, b"colour"),
        (["topic", "create", "c", "-c", "novalue"], 2, b"KEY=VALUE"),
        (["topic", "create", "c", "-c", "retention.ms=7 weeks"], 2, b"retention.ms must be a duration as 30s"),
        (["topic", "delete", "no-such"], 2, b"add --yes"),
        (["topic", "produce", "p", "--resume", "x"], 2, b"--resume takes"),
        (["topic", "produce", "p", "--acks", "2"], 2, b"acks"),
        (["topic", "produce", "p", "-k", "json:"], 2, b"json:"),
        (["topic", "alter", "a"], 2, b"nothing to alter"),
        (["no-such-command"], 2, b"No such command"),
        (["bucket", "ls", "--store", "file:no-such-folder"], 4, b"--store"),
        (["bucket", "ls", "--store", "ftp:x"], 2, b"s3://"),
        (["serve", "--flush-max-bytes", "1"], 2, b"64KiB to 1GiB"),
        (["config", "--config", "no-such.toml"], 2, b"no-such.toml"),
    ],
)
def test_a_mistake_is_reported_on_stderr_with_its_code(
    tidelog: Tidelog, arguments: list[str], code: int, told: bytes
) -> None:
    ended = tidelog(*arguments)
    assert (ended.returncode, ended.stdout) == (code, b"")
    assert told in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_without_a_broker_it_ends_with_3_and_says_what_to_do() -> None:
    ended = run_tidelog(["cluster", "health"], broker=f"http://127.0.0.1:{free_port()}")
    assert ended.returncode == 3
    assert b"tidelog serve" in ended.stderr


def test_a_reader_that_leaves_early_is_no_error(tidelog: Tidelog, broker: BrokerProcess) -> None:
    tidelog("topic", "produce", "long", stdin=b"line\n" * 200_000)
    for extra in ((), ("-e",)):
        command = ["topic", "consume", "long", "--broker", broker.url, *extra]
        with ForkedTidelog(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consuming:
            assert consuming.stdout.read(10) == b"line\nline\n"
            consuming.stdout.close()
            assert consuming.wait(30) == 0
            assert consuming.stderr.read() == b""


def test_ctrl_c_ends_a_consumer_that_follows(tidelog: Tidelog, broker: BrokerProcess) -> None:
    tidelog("topic", "produce", "followed", stdin=b"x\n")
    command = ["topic", "consume", "followed", "--broker", broker.url]
    with ForkedTidelog(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consuming:
        assert consuming.stdout.readline() == b"x\n"
        consuming.send_signal(signal.SIGINT)
        assert consuming.wait(30) == 130
        assert b"Traceback" not in consuming.stderr.read()


def test_lines_of_a_slow_pipe_go_out_as_they_come_and_ctrl_c_keeps_them(
    tidelog: Tidelog, broker: BrokerProcess
) -> None:
    tidelog("topic", "create", "slow")
    command = ["topic", "produce", "slow", "--broker", broker.url]
    with ForkedTidelog(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as producing:
        producing.stdin.write(b"first\nnot ended")
        producing.stdin.flush()
        wait_until(lambda: tidelog("topic", "consume", "slow", "-e").stdout == b"first\n", 60.0)
        producing.send_signal(signal.SIGINT)
        assert producing.wait(30) == 130
    assert tidelog("topic", "consume", "slow", "-e").stdout == b"first\n"


def test_config_shows_each_value_and_its_source(tidelog: Tidelog) -> None:
    shown = tidelog("config", "--port", "1234", "--json", environment={"TIDELOG_SHARDS": "7"})
    values = json.loads(shown.stdout)
    assert values["port"] == {"value": 1234, "source": "--port"}
    assert values["shards"] == {"value": 7, "source": "TIDELOG_SHARDS"}
    assert b"flush.interval.ms" in tidelog("config").stdout


def test_config_shows_of_a_secret_only_that_there_is_one(tidelog: Tidelog) -> None:
    environment = {"TIDELOG_PEER_SECRET": "hidden-hidden-hidden", "TIDELOG_ETCD_PASSWORD": "hidden"}
    for arguments in (("config",), ("config", "--json")):
        shown = tidelog(*arguments, environment=environment).stdout
        assert b"TIDELOG_PEER_SECRET" in shown
        assert b"hidden" not in shown


def test_help_is_there_at_once() -> None:
    def cpu_s() -> float:
        before = os.times()
        subprocess.run([*TIDELOG, "--help"], stdout=subprocess.DEVNULL, check=True, timeout=60)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    for attempt in attempts():
        with attempt:
            within(HELP_S_MAX, cpu_s(), "CPU time of `tidelog --help`")


def test_every_command_has_an_example_in_its_help() -> None:
    def leaves(group: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, found in group.commands.items():
            if hasattr(found, "commands"):
                yield from leaves(found, f"{path} {name}")
            else:
                yield f"{path} {name}", found

    found = dict(leaves(typer.main.get_command(app), "tidelog"))
    assert len(found) > 20
    assert [path for path, one in found.items() if f"[dim]{path}" not in (one.help or "")] == []


def test_version_and_completion_are_reported(tidelog: Tidelog) -> None:
    assert tidelog("version").stdout.startswith(b"tidelog 0.")
    assert tidelog("--version").stdout == tidelog("version").stdout
    in_a_shell = ["bash", "-c", '"$@"; exit $?', "bash", *TIDELOG, "--show-completion"]  # it asks for its parent
    assert b"complete" in subprocess.run(in_a_shell, capture_output=True, check=True, timeout=60).stdout


def test_the_page_explains_each_exit_code() -> None:
    explained = {int(code) for code in re.findall(r"^\| (\d+) \| \w", (DOCS / "cli.md").read_text(), re.MULTILINE)}
    assert explained == {code for code in vars(exit_codes).values() if isinstance(code, int)}


def test_serve_on_a_port_in_use_says_so(broker: BrokerProcess, tmp_path: Path) -> None:
    began = time.monotonic()
    ended = run_tidelog(["serve", "--port", str(broker.port), "--store", f"file:{tmp_path}"])
    assert ended.returncode == 1
    assert b"in use" in ended.stderr
    assert time.monotonic() - began < 30
