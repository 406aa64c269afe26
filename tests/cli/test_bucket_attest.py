"""`tidelog bucket attest` on a folder: its output is a proof later on, and its exit code says whether the proof
holds."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.end_to_end.broker_process import run_tidelog
from tests.storage.collect_scenes import CollectScene
from tests.storage.shard_histories import SHARD, TOPIC_ID

from tidelog.services.cli.bucket_attest import COLUMNS
from tidelog.storage.stores.local import LocalObjectStore


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalObjectStore]:
    opened = LocalObjectStore(tmp_path / "data")
    await CollectScene(opened).grow(4)
    yield opened
    await opened.aclose()


async def test_an_attestation_is_a_table_for_people(store: LocalObjectStore) -> None:
    told = run_tidelog(["bucket", "attest", "--store", store.url])
    assert told.returncode == 0
    headings, first, digest = told.stdout.decode().splitlines()
    assert re.split(r"  +", headings) == [name.upper() for name in COLUMNS]
    assert first.split()[:4] == ["web", TOPIC_ID, str(SHARD), "3"]
    assert len(digest.removeprefix("digest ")) == 64
    assert b"1 heads: proved" in told.stderr


async def test_an_archive_that_grew_is_proved_and_an_altered_one_named(store: LocalObjectStore, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_bytes(run_tidelog(["bucket", "attest", "web", "--json", "--store", store.url]).stdout)
    scene = CollectScene(store, seed=5)
    scene.history.made = 1_000
    await scene.grow(3)
    proved = run_tidelog(["bucket", "attest", "--since", str(kept), "--json", "--store", store.url])
    assert proved.returncode == 0
    assert b"1 heads, 1 in the earlier attestation: proved" in proved.stderr
    heads = [json.loads(line) for line in proved.stdout.splitlines()]
    assert [head.get("version") for head in heads] == [6, None]
    await store.delete(scene.log.key(2))
    failed = run_tidelog(["bucket", "attest", "--since", str(kept), "--store", store.url])
    assert failed.returncode == 6
    fault = failed.stdout.decode().splitlines()[0]
    assert fault.startswith(f"error: web ({TOPIC_ID}) in shard {SHARD}: ")
    assert "is missing, and no block of the history has it" in fault
    assert b"1 NOT PROVED" in failed.stderr


async def test_a_topic_that_no_shard_archives_is_named(store: LocalObjectStore) -> None:
    told = run_tidelog(["bucket", "attest", "wet", "--store", store.url])
    assert told.returncode == 4
    assert b"'wet'" in told.stderr


@pytest.mark.parametrize("text", [b"", b"{}\n", b"not what attest printed\n"])
async def test_a_file_that_is_not_an_attestation_is_refused(
    store: LocalObjectStore, tmp_path: Path, text: bytes
) -> None:
    file = tmp_path / "other.json"
    file.write_bytes(text)
    refused = run_tidelog(["bucket", "attest", "--since", str(file), "--store", store.url])
    assert refused.returncode == 2
    assert b"attest" in refused.stderr


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    told = run_tidelog(["bucket", "attest", "--store", f"file:{missing}"])
    assert told.returncode == 4
    assert not missing.exists()
