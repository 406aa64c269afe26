"""The feature level rises once every live broker knows it; a program that does not know it refuses to start."""

from __future__ import annotations

import pytest
from tests.coordinator.test_identity import KEYS, etcd, start

from tidelog.coordinator.cluster import feature_level, identity
from tidelog.coordinator.cluster.cluster_keys import BrokerRecord
from tidelog.coordinator.cluster.feature_level import raise_feature_level
from tidelog.coordinator.cluster.identity import bucket_identity, store_identity, write_bucket_identity
from tidelog.coordinator.journal import Journal, JournalEntry, decode_entry, encode_entry
from tidelog.storage.errors import Corrupt, Invalid, NewerFormat
from tidelog.storage.formats import FEATURE_LEVEL, Format
from tidelog.storage.json_checksum import with_checksum
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore

NEXT = FEATURE_LEVEL + 1


def broker(name: str, level: int) -> BrokerRecord:
    return BrokerRecord(name, "i", "http://127.0.0.1:1", "", "1.0", 0, True, False, level)


async def opened(bucket: MemoryObjectStore) -> Journal:
    journal = Journal(bucket, Runtime())
    await journal.open()
    return journal


async def test_the_level_rises_in_bucket_and_store_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, kv = MemoryObjectStore(), etcd()
    before = await start(bucket, kv)
    for module in (feature_level, identity):
        monkeypatch.setattr(module, "FEATURE_LEVEL", NEXT)
    journal = await opened(bucket)
    raised = await raise_feature_level(journal, (kv, KEYS), NEXT, [broker("a", NEXT), broker("b", NEXT)])
    assert (before.feature_level, raised.feature_level) == (FEATURE_LEVEL, NEXT)
    assert await write_bucket_identity(journal, before) == raised, "a broker that is late does not lower it"
    assert await start(bucket, kv, seed=2) == raised
    assert await store_identity(kv, KEYS) == raised
    with pytest.raises(Invalid, match="never lowered"):
        await raise_feature_level(journal, (kv, KEYS), FEATURE_LEVEL, [])


async def test_a_broker_that_does_not_know_the_level_keeps_it_down(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, kv = MemoryObjectStore(), etcd()
    before = await start(bucket, kv)
    journal = await opened(bucket)
    with pytest.raises(Invalid, match="this broker does not know"):
        await raise_feature_level(journal, (kv, KEYS), NEXT, [broker("a", NEXT)])
    monkeypatch.setattr(feature_level, "FEATURE_LEVEL", NEXT)
    live = [broker("older", 1), broker("a", NEXT), broker("old", FEATURE_LEVEL)]
    with pytest.raises(Invalid, match="old, older does not know feature level"):
        await raise_feature_level(journal, (kv, KEYS), NEXT, live)
    assert bucket_identity(journal) == before


async def test_a_program_that_does_not_know_the_level_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, kv = MemoryObjectStore(), etcd()
    with monkeypatch.context() as later:
        for module in (feature_level, identity):
            later.setattr(module, "FEATURE_LEVEL", NEXT)
        await start(bucket, kv)
    with pytest.raises(NewerFormat, match=f"at feature level {NEXT}, and this Tidelog knows up to {FEATURE_LEVEL}"):
        await start(bucket, kv, seed=3)


async def test_an_entry_of_a_later_version_is_refused_and_is_no_damage() -> None:
    bucket = MemoryObjectStore()
    await bucket.create("meta/00000000000000000000.json", encode_entry(JournalEntry(99, "id", 0, ())))
    with pytest.raises(NewerFormat, match="version 99 of the format 'journal'"):
        await opened(bucket)


def test_a_damaged_entry_of_a_later_version_is_damage() -> None:
    stored = bytearray(encode_entry(JournalEntry(99, "id", 0, ())))
    stored[stored.index(b'"id"') + 1] ^= 1
    with pytest.raises(Corrupt):
        decode_entry("meta/0", bytes(stored))


def test_unknown_fields_of_a_known_version_are_passed_over() -> None:
    data = with_checksum(b'{"format_version":1,"entry_id":"i","written_at_ms":0,"changes":[],"from_the_future":[1]}')
    assert decode_entry("meta/0", data).entry_id == "i"


def test_the_versions_that_a_format_reads() -> None:
    form = Format("wal", newest=4, oldest=2)
    for version in (2, 3, 4):
        form.check("key", version)
    with pytest.raises(NewerFormat, match=r"key: is of version 5 .* Install that version here"):
        form.check("key", 5)
    with pytest.raises(Corrupt, match="2 is the first"):
        form.check("key", 1)
