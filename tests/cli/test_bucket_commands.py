"""`tidelog bucket verify | repair | sweep | copy` as a script uses them: output, files, exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.cli.conftest import Tidelog
from tests.cli.test_progress import everything_from
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog
from tests.end_to_end.forked_tidelog import ForkedTidelog

from tidelog.storage.layout import staging_prefix


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket that a broker has used."""
    folder = tmp_path_factory.mktemp("bucket")
    process = BrokerProcess(folder, {"store": f"file:{folder / 'data'}"})
    process.start()
    try:
        produced = run_tidelog(["topic", "produce", "web"], broker=process.url, stdin=b"x\n" * 100)
        assert produced.returncode == 0, produced.stderr
    finally:
        process.stop()
    return folder / "data"


@pytest.fixture
def own(bucket: Path, tmp_path: Path) -> Path:
    """A bucket of the same kind, which the test may damage."""
    subprocess.run(["cp", "-r", "-p", bucket, tmp_path / "own"], check=True)
    return tmp_path / "own"


def ended(command: str, *arguments: str) -> tuple[int, Sequence[Mapping[str, object]], str]:
    done = run_tidelog(["bucket", command, *arguments])
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    return done.returncode, lines, done.stderr.decode()


def damage(bucket: Path) -> str:
    """Cut the last byte off an entry; return its key."""
    entry = max(bucket.glob("wal/*/*.parquet"), key=lambda path: path.stat().st_size)
    entry.write_bytes(entry.read_bytes()[:-1])
    return str(entry.relative_to(bucket))


def test_repair_reports_losses_and_records_them_on_request(own: Path) -> None:
    key, store = damage(own), f"file:{own}"
    entry = own / key
    entry.write_bytes(b"X" * 20 + entry.read_bytes()[20:] + b"1")  # the records are damaged, the footer is not
    code, lines, _ = ended("repair", "--json", "--store", store)
    *actions, last = lines
    assert (code, last) == (6, {"applied": False, "repaired": False})
    assert {(action["action"], action["object"]) for action in actions} == {("lose", key), ("give up", key)}
    code, lines, _ = ended("repair", "--apply", "--json", "--store", store)
    assert (code, lines[-1]) == (0, {"applied": True, "repaired": True})
    code, lines, _ = ended("verify", "--deep", "--json", "--store", store)
    assert (code, [finding["severity"] for finding in lines[:-1]]) == (0, ["loss"])


def test_verify_prints_an_object_a_finding_and_sums_up(own: Path) -> None:
    key = damage(own)
    code, lines, _ = ended("verify", "--json", "--store", f"file:{own}")
    assert code == 6
    *findings, last = lines
    assert {(finding["key"], finding["severity"]) for finding in findings} == {(key, "error")}
    assert last["sound"] is False
    summary = last["summary"]
    assert isinstance(summary, dict)
    assert summary["errors"] == len(findings)
    assert summary["objects"] == sum(path.is_file() for path in own.rglob("*") if ".tidelog" not in path.parts)


def test_a_walk_that_ended_leaves_no_file_and_one_of_another_bucket_is_refused(bucket: Path, tmp_path: Path) -> None:
    file = tmp_path / "walk.json"
    assert ended("verify", "--resume", str(file), "--store", f"file:{bucket}")[0] == 0
    assert not file.exists()
    file.write_text('{"format_version":3,"store":"s3://other","deep":false}')
    code, _, told = ended("verify", "--resume", str(file), "--store", f"file:{bucket}")
    assert (code, "s3://other" in told) == (2, True)
    assert file.exists()


def test_a_bar_shows_on_a_terminal(bucket: Path) -> None:
    ours, theirs = pty.openpty()
    command = ["bucket", "verify", "--store", f"file:{bucket}"]
    verifying = ForkedTidelog(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = everything_from(ours)
    verifying.communicate(timeout=60)
    assert verifying.returncode == 0
    assert b"verifying" in shown
    assert b"sound" in shown


def test_sweep_only_reports_by_default(own: Path) -> None:
    stray = own / staging_prefix("dead") / "part"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"x" * 10)
    os.utime(stray, (1_000_000_000, 1_000_000_000))
    store = f"file:{own}"
    code, (told, _), _ = ended("sweep", "--json", "--store", store)
    assert (code, told["reason"], told["deleted"]) == (0, "staging", False)
    assert stray.exists()
    code, _, said = ended("sweep", "--delete", "--grace", "2h", "--store", store)
    assert (code, "deleted 1, 10 B" in said) == (0, True)
    assert not stray.exists()
    assert "nothing is stray" in ended("sweep", "--store", store)[2]


def test_copy_makes_a_bucket_and_says_what_it_did(own: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    source, copied = f"file:{own}", f"file:{target}"
    code, (report,), _ = ended("copy", source, copied, "--json")
    assert (code, report["damaged"]) == (0, [])
    assert ended("verify", "--deep", "--store", copied)[0] == 0
    assert "0 objects, 0 B copied" in ended("copy", source, copied)[2]
    (tmp_path / "else" / "x").mkdir(parents=True)
    (tmp_path / "else" / "x" / "y").write_bytes(b"z")
    code, _, told = ended("copy", source, f"file:{tmp_path / 'else'}")
    assert (code, "empty bucket" in told) == (5, True)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["sweep", "--grace", "5s"], 2, "--grace"),
        (["sweep", "--grace", "soon"], 2, "duration"),
        (["copy", "file:no-such-folder", "file:x"], 4, "no-such-folder"),
        (["copy", "file:a"], 2, "DST"),
        (["verify", "--store", "file:no-such-folder"], 4, "--store"),
    ],
)
def test_refusals(arguments: list[str], code: int, told: str) -> None:
    found, _, said = ended(*arguments)
    assert found == code, said
    assert told in said


def test_verify_goes_along_with_a_running_broker(tidelog: Tidelog, store: Path) -> None:
    tidelog("topic", "produce", "beside", stdin=b"x\n")
    code, lines, _ = ended("verify", "--deep", "--json", "--store", f"file:{store}")
    assert (code, lines[-1]["sound"]) == (0, True)
