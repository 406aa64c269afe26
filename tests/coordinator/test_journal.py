import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinator.journal import (
    CHECKPOINT_EVERY,
    Change,
    Delete,
    Journal,
    JournalEntry,
    Put,
    decode_entry,
    encode_entry,
)
from tidelog.storage.errors import Conflict, Corrupt, NewerFormat, Unavailable
from tidelog.storage.layout import META_PREFIX, numbered_key
from tidelog.storage.object_store import Body, ByteRange, StoredObject
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb


def put(key: str, value: object) -> Put:
    return Put(key, msgspec.Raw(msgspec.json.encode(value)))


def runtime(seed: int = 1) -> Runtime:
    return Runtime(entropy=SeededEntropy(seed))


async def opened(store: MemoryObjectStore | CountingObjectStore, seed: int = 1) -> Journal:
    journal = Journal(store, runtime(seed))
    await journal.open()
    return journal


def state(journal: Journal) -> dict[str, object]:
    return {key: msgspec.json.decode(raw) for key, raw in journal.items("")}


async def test_written_entries_are_there_after_reopening() -> None:
    store = MemoryObjectStore()
    journal = await opened(store)
    await journal.update(lambda: (put("a", 1), put("b", 2)))
    await journal.update(lambda: (Delete("a"), put("c", "three")))
    assert state(await opened(store)) == state(journal) == {"b": 2, "c": "three"}


async def test_opening_a_long_journal_reads_from_the_last_checkpoint_on() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    journal = await opened(store)
    for number in range(2 * CHECKPOINT_EVERY + 5):
        await journal.update(lambda number=number: (put(f"k{number % 7}", number),))  # type: ignore[misc]
    before = store.usage()
    again = await opened(store)
    spent = store.usage() - before
    assert state(again) == state(journal)
    assert (spent.requests(Verb.LIST), spent.requests(Verb.GET)) == (1, 5)


async def test_a_decision_uses_entries_that_another_writer_wrote_first() -> None:
    store = MemoryObjectStore()
    first, second = await opened(store, 1), await opened(store, 2)
    await first.update(lambda: (put("n", 1),))

    def one_more() -> tuple[Change, ...]:
        raw = second.get("n")
        return (put("n", (0 if raw is None else msgspec.json.decode(raw)) + 1),)

    await second.update(one_more)
    assert state(second) == {"n": 2}


async def test_racing_writers_lose_no_update() -> None:
    store = MemoryObjectStore()
    journals = [await opened(store, seed) for seed in range(5)]

    async def count(journal: Journal) -> None:
        for _ in range(20):
            await journal.update(lambda: (put("n", int(msgspec.json.decode(journal.get("n") or b"0")) + 1),))

    await asyncio.gather(*(count(journal) for journal in journals))
    assert state(await opened(store)) == {"n": 100}


class HoldsReads(MemoryObjectStore):
    """While `held`, reads of existing objects wait for `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        self._waiting = 0
        self._changed = asyncio.Condition()
        self._released = asyncio.Event()

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        found = await super().get(key, byte_range)
        if self.held:
            async with self._changed:
                self._waiting += 1
                self._changed.notify_all()
            await self._released.wait()
        return found

    async def waiting_for(self, reads: int) -> None:
        async with asyncio.timeout(5), self._changed:
            await self._changed.wait_for(lambda: self._waiting == reads)

    def release(self) -> None:
        self.held = False
        self._released.set()


async def test_reading_on_may_overlap_with_writing_and_with_itself() -> None:
    store = HoldsReads()
    writer, journal = await opened(store, 1), await opened(store, 2)
    await writer.update(lambda: (put("n", 0),))
    store.held = True
    readings = [asyncio.create_task(journal.catch_up()) for _ in range(3)]
    await store.waiting_for(3)
    update = asyncio.create_task(journal.update(lambda: (put("m", journal.next_number),)))
    await store.waiting_for(4)  # its create found the existing entry, and it reads that one
    store.release()
    await asyncio.gather(*readings, update)
    await journal.update(lambda: (put("after", journal.next_number),))
    assert state(journal) == {"n": 0, "m": 1, "after": 2}
    assert state(await opened(store)) == state(journal)


class Heard:
    """A `JournalObserver`."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def advanced(self) -> None:
        self.heard.append("advanced")

    def appended(self) -> None:
        self.heard.append("appended")


async def test_an_observer_hears_of_own_entries_and_of_those_of_others() -> None:
    store, heard = MemoryObjectStore(), Heard()
    journal, other = await opened(store, 1), await opened(store, 2)
    journal.observe(heard)
    await journal.update(lambda: (put("a", 1),))
    await other.update(lambda: (put("b", 1),))
    await journal.catch_up()
    assert heard.heard == ["advanced", "appended", "advanced"]


async def test_an_update_that_decides_nothing_writes_nothing() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    journal = await opened(store)
    await journal.update(lambda: ())
    assert store.usage().requests(Verb.CREATE) == 0


class LosesAnswers(MemoryObjectStore):
    """Its creates take effect; the first answer is lost, as a `Conflict` of a retry or as an outage."""

    def __init__(self, lost: type[Exception]) -> None:
        super().__init__()
        self.lost: Exception | None = lost("the answer was lost")

    async def create(self, key: str, data: Body) -> str:
        version = await super().create(key, data)
        if self.lost:
            lost, self.lost = self.lost, None
            raise lost
        return version


async def test_its_own_entry_is_known_by_its_id_when_the_answer_was_lost() -> None:
    store = LosesAnswers(Conflict)
    journal = await opened(store)
    await journal.update(lambda: (put("a", 1),))
    assert (state(journal), journal.next_number) == ({"a": 1}, 1)


async def test_after_an_unknown_outcome_the_next_update_reads_on_first() -> None:
    journal = await opened(LosesAnswers(Unavailable))
    with pytest.raises(Unavailable):
        await journal.update(lambda: (put("a", 1),))
    seen: list[object] = []
    await journal.update(lambda: (seen.append(state(journal)), (put("b", 2),))[1])  # type: ignore[func-returns-value]
    assert seen == [{"a": 1}]
    assert state(journal) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b'{"format_version": 1}', b'{"format_version": "1"}', b"\xff\xfe", b'{"format_version": 1, "x'],
)
def test_an_entry_that_cannot_be_read_is_corrupt_and_named(data: bytes) -> None:
    with pytest.raises(Corrupt) as raised:
        decode_entry("meta/7.json", data)
    assert raised.value.name == "meta/7.json"


def test_an_unknown_format_version_is_refused_by_its_number() -> None:
    with pytest.raises(NewerFormat, match="version 9 of the format"):
        decode_entry("meta/0.json", b'{"format_version": 9, "more": true}')


ENTRY = JournalEntry(1, "ab" * 16, 1_700_000_000_000, (put("topics/web", {"partitions": 3}), Delete("b")), {})


def test_an_entry_has_its_earlier_form_plus_a_checksum() -> None:
    """So an older Tidelog can read it, and this one can read entries of an older one."""
    before = msgspec.json.encode(ENTRY)
    assert encode_entry(ENTRY).startswith(before[:-1])
    assert msgspec.json.decode(encode_entry(ENTRY), type=JournalEntry) == ENTRY
    assert decode_entry("meta/7.json", before) == decode_entry("meta/7.json", encode_entry(ENTRY)) == ENTRY


@given(place=st.integers(0, len(encode_entry(ENTRY)) - 1), bit=st.integers(0, 7))
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_of_an_entry_is_noticed_or_means_the_same(place: int, bit: int) -> None:
    good = encode_entry(ENTRY)
    bad = good[:place] + bytes([good[place] ^ (1 << bit)]) + good[place + 1 :]
    try:
        assert decode_entry("meta/7.json", bad) == ENTRY
    except Corrupt:
        return


async def test_a_journal_of_which_the_older_half_has_no_checksums_is_read_on() -> None:
    store = MemoryObjectStore()
    journal = await opened(store)
    for number in range(4):
        await journal.update(lambda number=number: (put(f"k{number}", number),))  # type: ignore[misc]
    for number in range(2):
        key = numbered_key(META_PREFIX, number, ".json")
        entry = decode_entry(key, (await store.get(key)).data)
        await store.put(key, msgspec.json.encode(entry))
    assert state(await opened(store, 2)) == state(journal) == {f"k{number}": number for number in range(4)}


async def test_an_entry_lost_from_the_middle_is_corrupt() -> None:
    store = MemoryObjectStore()
    journal = await opened(store)
    for number in range(3):
        await journal.update(lambda number=number: (put("k", number),))  # type: ignore[misc]
    await store.delete(numbered_key(META_PREFIX, 1, ".json"))
    with pytest.raises(Corrupt, match="missing"):
        await opened(store)
