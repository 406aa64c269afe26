"""A broker that meets an object of a later version says so, with the version, and takes it for no damage."""

from __future__ import annotations

import hashlib
import re
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import numbered
from tests.broker.logs import partition_log
from tests.formats.expected import ALL, clock_after, expected_of, unpacked
from tests.formats.later_program import later
from tests.formats.write import format_versions

from tidelog.coordinator.cluster import feature_level, identity
from tidelog.coordinator.recovery.journal_check import JournalCheck
from tidelog.coordinator.topics.journal_topics import JournalTopics
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage import formats
from tidelog.storage.bucket.attest import BucketAttestation, Unproved
from tidelog.storage.bucket.copy_mark import CopyMark, encode_copy_mark
from tidelog.storage.bucket.repair.bucket_repair import BucketRepair
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.errors import NewerFormat
from tidelog.storage.formats import FEATURE_LEVEL, Format
from tidelog.storage.layout import COPY_KEY
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.json_envelope import seal, unseal
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.wire.groups import CommitOffsets, FetchOffsets, PartitionOffset

NEXT = FEATURE_LEVEL + 1
ADDED = 40
"""Entries of a shard, more than an index waits for."""


AT_START = (formats.JOURNAL, formats.MANIFEST, formats.WAL, formats.WAL_INDEX)
"""A broker needs objects of these formats in order to start."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bucket whose topics get lists at their next change."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)
    return unpacked(FEATURE_LEVEL, tmp_path / "bucket")


def objects(folder: Path) -> dict[str, str]:
    """The digest of every object."""
    paths = (path for path in folder.rglob("*") if path.is_file() and ".tidelog" not in path.parts)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def broker_on(folder: Path, *, upkeep: bool = False) -> AbstractAsyncContextManager[LocalBroker]:
    clock = clock_after(expected_of(FEATURE_LEVEL))
    return running_broker(LocalObjectStore(folder), clock=clock, archiver_upkeep=upkeep)


async def commit(broker: LocalBroker) -> None:
    offsets = (PartitionOffset(topic="wide", partition=0, offset=1),)
    await broker.groups.call(ANYBODY, "later", CommitOffsets(offsets=offsets))


async def written_by_later(folder: Path, form: Format) -> None:
    with later(form):
        async with broker_on(folder) as broker:
            await write_all(broker)


async def write_all(broker: LocalBroker) -> None:
    """Write objects of all formats but a mark of a copy and a block of a history."""
    await broker.create_topic(ANYBODY, "later", 2, {})
    for partition in (0, 1):
        for _ in range(ADDED):
            await broker.produce(ANYBODY, "later", numbered(0, 1), ProduceOptions(partition=partition))
    await broker.archive_now()
    for partition in (0, 1):
        await broker.produce(ANYBODY, "later", numbered(0, 1), ProduceOptions(partition=partition))
    await commit(broker)


def refusal(form: Format) -> str:
    return f"version {form.newest + 1} of the format '{form.name}', and this Tidelog reads up to {form.newest}"


async def findings_of(folder: Path) -> list[str]:
    store, runtime = LocalObjectStore(folder), Runtime()
    verification = BucketVerification(
        store,
        deep=True,
        topics=JournalTopics(store, runtime),
        journal=lambda: JournalCheck(store, runtime, deep=True).findings(),
    )
    return [finding.text async for finding in verification.findings()]


async def test_a_broker_that_does_not_know_the_level_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as program:
        for module in (feature_level, identity):
            program.setattr(module, "FEATURE_LEVEL", NEXT)
        async with broker_on(folder) as broker:
            await broker.raise_feature_level(ANYBODY, NEXT)
    before = objects(folder)
    with pytest.raises(NewerFormat, match=f"at feature level {NEXT}, and this Tidelog knows up to {FEATURE_LEVEL}"):
        async with broker_on(folder):
            pass
    assert objects(folder) == before


@pytest.mark.parametrize("form", AT_START, ids=lambda form: form.name)
async def test_a_broker_that_cannot_read_a_log_does_not_start_and_changes_nothing(folder: Path, form: Format) -> None:
    await written_by_later(folder, form)
    before = objects(folder)
    with pytest.raises(NewerFormat, match=refusal(form)):
        async with broker_on(folder):
            pass
    await check_not_repaired(folder, form)
    assert objects(folder) == before


@pytest.mark.parametrize("form", [formats.SEGMENT, formats.SEGMENT_LIST], ids=lambda form: form.name)
async def test_cold_records_that_cannot_be_read_are_no_damage(folder: Path, form: Format) -> None:
    """Other topics are read, and neither upkeep nor a repair takes the objects away."""
    await written_by_later(folder, form)
    before = objects(folder)
    async with broker_on(folder, upkeep=True) as broker:
        with pytest.raises(NewerFormat, match=refusal(form)):
            await broker.fetch(ANYBODY, "later", 0, 0, ALL)
        texts = await broker.fetch(ANYBODY, "texts", 0, 0, ALL)
        assert texts.next_offset == 6
        with suppress(NewerFormat):
            await broker.archive_now()
            await broker.upkeep_now()
    assert before.items() <= objects(folder).items()
    found = [text for text in await findings_of(folder) if re.search(refusal(form), text)]
    assert found
    assert [text for text in found if "repair" in text or "restore" in text] == []
    await check_not_repaired(folder, form)


async def test_a_list_of_a_later_version_stops_its_topic_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is named in the status and in the log, and archiving and upkeep go on with the others."""
    await written_by_later(folder, formats.SEGMENT_LIST)
    async with broker_on(folder, upkeep=True) as broker:
        for topic in ("texts", "trimmed"):
            await broker.produce(ANYBODY, topic, numbered(0, 3), ProduceOptions(partition=0))
        with pytest.raises(NewerFormat, match=refusal(formats.SEGMENT_LIST)):
            await broker.archive_now()
        await broker.upkeep_now()
        for topic in ("texts", "trimmed"):
            log = await partition_log(broker, topic, 0, fresh=False)
            assert log.cold_end == log.high_watermark > 0
        found = [damage for damage in broker.status().damages if damage.topic == "later"]
        assert {damage.shard for damage in found} == set(broker.topic(ANYBODY, "later").shards)
        assert all(damage.newer and "/lists/" in damage.key for damage in found)
    said = [record.getMessage() for record in caplog.records if "unreadable object" in record.getMessage()]
    assert said
    assert all("nothing is damaged: install" in text for text in said)


async def check_not_repaired(folder: Path, form: Format) -> None:
    """The plan changes nothing, and says which version to install. Without the journal there is no plan."""
    store = LocalObjectStore(folder)
    with suppress(NewerFormat):
        plan = await BucketRepair(store, JournalTopics(store, Runtime()), Runtime(), deep=True).plan()
        assert not plan
        texts = [finding.text for finding in plan.unsolved]
        assert [text for text in texts if not re.search(refusal(form), text) or "backup" in text] == []


async def test_groups_that_cannot_be_read_are_refused(folder: Path) -> None:
    await written_by_later(folder, formats.GROUP_JOURNAL)
    before = objects(folder)
    async with broker_on(folder) as broker:
        with pytest.raises(NewerFormat, match=refusal(formats.GROUP_JOURNAL)):
            await broker.groups.call(ANYBODY, "readers", FetchOffsets())
        with pytest.raises(NewerFormat, match=refusal(formats.GROUP_JOURNAL)):
            await commit(broker)
    assert before.items() <= objects(folder).items()


async def test_a_history_that_cannot_be_read_proves_nothing(folder: Path) -> None:
    """The block is sealed again, as a later program would."""
    (block,) = (folder / "manifests" / "0000" / "history").iterdir()
    content = unseal(block.name, block.read_bytes(), formats.HISTORY)
    with later(formats.HISTORY):
        block.write_bytes(seal(formats.HISTORY, content))
    earlier = expected_of(FEATURE_LEVEL).heads
    found = [head async for head in BucketAttestation(LocalObjectStore(folder), Runtime(), earlier).heads()]
    unproved = [answer for answer in found if isinstance(answer, Unproved)]
    assert {answer.shard for answer in unproved} == {0}
    assert all(re.search(refusal(formats.HISTORY), answer.fault) for answer in unproved)


async def test_the_mark_of_a_copy_that_cannot_be_read_is_reported(folder: Path) -> None:
    mark = CopyMark("s3://elsewhere", "", whole=False, format_version=formats.COPY_MARK.newest + 1)
    (folder / COPY_KEY).write_bytes(encode_copy_mark(mark))
    assert [text for text in await findings_of(folder) if re.search(refusal(formats.COPY_MARK), text)]


def test_every_format_has_a_test() -> None:
    tested = {
        *AT_START,
        formats.SEGMENT,
        formats.SEGMENT_LIST,
        formats.GROUP_JOURNAL,
        formats.HISTORY,
        formats.COPY_MARK,
    }
    assert {form.name for form in tested} == format_versions().keys()
