"""A fetch that takes stored row groups gets exactly the records, ends and errors of one that takes Arrow."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx
import msgspec
import pyarrow as pa
import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker
from tests.storage.damage_by_hand import Harm, cut, delete, flip

from tidelog.client.arrow_stream import ARROW, accepting
from tidelog.client.connection import Answer
from tidelog.client.consumed import TopicPartition
from tidelog.client.fetch_bodies import Undecodable, fetch_answer
from tidelog.client.fetched_parts import PartOutcome
from tidelog.services.broker.api.produce import Draft, ProduceOptions
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.http.app import create_app
from tidelog.storage.errors import RecordsLost
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.records import DRAFT_SCHEMA, HEADERS, TIMESTAMP
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire.polls import STORED_MEDIA

LARGE, SMALL = range(2), range(2, 10)
"""The partitions that have row groups of their own, and those that share some."""
BATCHES = 4
ANSWERS_MAX = 500
BOTH = accepting("zstd", stored=True)
ACCEPTS = {"arrow": ARROW, "stored": BOTH}


def mixed_draft(seed: int, count: int, value_bytes: int, *, keys: int | None = None) -> Draft:
    """Records with nulls, headers and values of unequal sizes; `keys`: every record has one of so many keys."""
    noise = random.Random(seed)
    values = [
        noise.randbytes(noise.randrange(2 * value_bytes)) if noise.random() > 0.05 else None for _ in range(count)
    ]
    names = [b"%d" % noise.randrange(keys or 9) if keys or noise.random() > 0.5 else None for _ in range(count)]
    headers = [
        [{"key": "h", "value": b"x"}] * noise.randrange(3) if noise.random() > 0.6 else None for _ in range(count)
    ]
    times = [noise.randrange(10**12) for _ in range(count)]
    columns = [pa.array(times, TIMESTAMP), pa.array(names, pa.binary()), pa.array(values, pa.binary())]
    records = pa.Table.from_arrays([*columns, pa.array(headers, HEADERS)], schema=DRAFT_SCHEMA)
    return Draft(records, None, records.nbytes)


@dataclass
class Fetches:
    """Sends fetches of topic `t`, and counts the answers with stored row groups."""

    http: httpx.AsyncClient
    stored_answers: int = 0

    async def fetch(
        self, way: str, offsets: dict[int, int | str], **bounds: int
    ) -> tuple[dict[int, PartOutcome], dict[int, pa.Table]]:
        parts = [{"topic": "t", "partition": number, "offset": offset} for number, offset in offsets.items()]
        body = msgspec.json.encode({"partitions": parts, **bounds})
        headers = {"content-type": "application/json", "accept": ACCEPTS[way]}
        answer = await self.http.post("/v1/fetch", content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        self.stored_answers += answer.headers["content-type"] == STORED_MEDIA
        outcomes, records = fetch_answer(Answer(200, answer.headers, answer.content))
        by_number = {number: TopicPartition("t", number) for number in offsets}
        return (
            {number: outcomes[place] for number, place in by_number.items()},
            {number: records.records(place) for number, place in by_number.items()},
        )

    async def whole(self, way: str, begins: dict[int, int], **bounds: int) -> dict[int, pa.Table]:
        """The records of partitions from `begins` to their ends."""
        at = dict(begins)
        found: dict[int, list[pa.Table]] = {number: [] for number in begins}
        for _ in range(ANSWERS_MAX):
            if not at:
                break
            outcomes, records = await self.fetch(way, dict(at), **bounds)
            for number, outcome in outcomes.items():
                assert outcome.error is None
                assert outcome.next_offset is not None
                if (table := records[number]).num_rows:
                    assert table["offset"][0].as_py() >= at[number]
                    assert outcome.next_offset == table["offset"][-1].as_py() + 1
                    found[number].append(table)
                del at[number]
                if outcome.next_offset < outcome.high_watermark:
                    at[number] = outcome.next_offset  # behind the others in the next fetch
        assert not at, "reading goes on"
        return {number: pa.concat_tables(tables) if tables else pa.table({}) for number, tables in found.items()}


@asynccontextmanager
async def serving(store: ObjectStore, **changes: object) -> AsyncIterator[tuple[LocalBroker, Fetches]]:
    async with running_broker(store, shards=1, **changes) as broker:
        app = create_app(broker, replace(SETTINGS, shards=1), Runtime())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            yield broker, Fetches(http)


async def create(broker: LocalBroker, **configs: str) -> None:
    await broker.create_topic(ANYBODY, "t", len(LARGE) + len(SMALL), {"retention.ms": "-1", **configs})


async def fill(broker: LocalBroker, seed: int, **options: int) -> None:
    """A segment for each of some batches."""
    for number in range(BATCHES):
        for partition in (*LARGE, *SMALL):
            draft = mixed_draft(
                100 * seed + 10 * number + partition, 700 if partition in LARGE else 5, 1_000, **options
            )
            await broker.produce(ANYBODY, "t", draft, ProduceOptions(partition=partition))
        await broker.archive_now()


async def same_both_ways(fetches: Fetches, begins: dict[int, int], **bounds: int) -> None:
    arrow, stored = [await fetches.whole(way, begins, **bounds) for way in ACCEPTS]
    for number in begins:
        assert arrow[number].equals(stored[number]), f"partition {number} from {begins[number]}"


@pytest.mark.parametrize("configs", [{}, {"segment.ms": 1}, {"cleanup.policy": "compact"}], ids=str)
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_record_is_the_same(seed: int, configs: dict[str, str | int]) -> None:
    """As archived, merged once, merged for good, and compacted."""
    noise = random.Random(seed)
    async with serving(MemoryObjectStore()) as (broker, fetches):
        settings = {name: str(value) for name, value in configs.items()}
        if "cleanup.policy" in settings:
            settings |= {"min.cleanable.dirty.ratio": "0", "segment.ms": "1"}
        await create(broker, **settings)
        await fill(broker, seed, **({"keys": 2_500} if "cleanup.policy" in settings else {}))
        if configs:
            await broker.upkeep_now()
        await broker.produce(ANYBODY, "t", mixed_draft(seed, 20, 1_000, keys=9), ProduceOptions(partition=0))
        if "cleanup.policy" not in settings:
            await broker.delete_records(ANYBODY, "t", 0, 33)
        ends = {number: (await fetches.fetch("arrow", {number: "latest"}))[0][number] for number in (*LARGE, *SMALL)}
        starts = {number: end.log_start_offset for number, end in ends.items()}
        await same_both_ways(fetches, starts)
        assert fetches.stored_answers, "some answers have stored row groups"
        for _ in range(6):
            begins = {
                number: noise.randint(starts[number], ends[number].high_watermark)
                for number in noise.sample(list(starts), 4)
            }
            bounds = {"max_bytes": noise.choice([1 << 19, 2 << 20]), "max_records": noise.choice([650, 100_000])}
            await same_both_ways(fetches, begins, **bounds)


async def test_a_position_in_words_begins_at_its_record() -> None:
    async with serving(MemoryObjectStore()) as (broker, fetches):
        await create(broker)
        await fill(broker, 1)
        for position in ("earliest", "-900", "@500000000000"):
            (arrow, of_arrow), (stored, of_stored) = [await fetches.fetch(way, {0: position}) for way in ACCEPTS]
            first = of_arrow[0]["offset"][0]
            assert of_stored[0]["offset"][0] == first
            rows = min(of_arrow[0].num_rows, of_stored[0].num_rows)
            assert of_arrow[0].slice(0, rows).equals(of_stored[0].slice(0, rows))
            assert replace(arrow[0], next_offset=0) == replace(stored[0], next_offset=0)
        assert fetches.stored_answers == 3


async def test_an_answer_is_within_its_bounds() -> None:
    async with serving(MemoryObjectStore()) as (broker, fetches):
        await create(broker)
        await fill(broker, 1)
        for bytes_max in (1 << 18, 1 << 20, 3 << 20):
            for records_max in (1, 699, 1_400, 10_000):
                bounds = {"max_bytes": bytes_max, "max_records": records_max}
                _, records = await fetches.fetch("stored", {0: 350, 1: 0}, **bounds)
                sizes = [table["value"].nbytes - 4 * table.num_rows for table in records.values() if table.num_rows]
                assert sum(sizes) <= bytes_max + 1_000
                assert sum(table.num_rows for table in records.values()) <= records_max
        assert fetches.stored_answers


async def test_small_partitions_and_new_records_come_as_arrow() -> None:
    async with serving(MemoryObjectStore()) as (broker, fetches):
        await create(broker)
        await fill(broker, 1)
        await broker.produce(ANYBODY, "t", mixed_draft(5, 2_000, 1_000), ProduceOptions(partition=0))
        _, records = await fetches.fetch("stored", {**dict.fromkeys(SMALL, 0), 0: BATCHES * 700})
        assert sum(table.num_rows for table in records.values()) == len(SMALL) * BATCHES * 5 + 2_000
        assert not fetches.stored_answers


@pytest.mark.parametrize("harm", [delete, flip, cut])
async def test_a_damaged_segment_is_the_same_error(harm: Harm) -> None:
    store = MemoryObjectStore()
    async with serving(store) as (broker, _):
        await create(broker)
        await fill(broker, 1)
    keys = sorted([info.key for info in await store.list("topics/") if info.key.endswith(".parquet")])
    await harm(store, keys[1])
    found: dict[str, list[object]] = {}
    for way in ACCEPTS:
        async with serving(store, archiver_upkeep=False) as (_, fetches):
            for offset in range(0, BATCHES * 700, 350):
                for number in LARGE:
                    outcomes, records = await fetches.fetch(way, {number: offset}, max_bytes=1 << 20)
                    error = outcomes[number].error
                    lost = (str(error), error.next_offset) if isinstance(error, RecordsLost) else error
                    found.setdefault(way, []).append(lost if lost else records[number]["offset"][0].as_py())
            assert fetches.stored_answers == 0 or way == "stored"
    assert found["arrow"] == found["stored"]
    assert any(isinstance(one, tuple) for one in found["stored"])


async def test_stored_records_that_cannot_be_decoded_are_named() -> None:
    async with serving(MemoryObjectStore()) as (broker, fetches):
        await create(broker)
        await fill(broker, 1)
        body = b'{"partitions": [{"topic": "t", "partition": 0, "offset": 0}]}'
        headers = {"content-type": "application/json", "accept": BOTH}
        answer = await fetches.http.post("/v1/fetch", content=body, headers=headers)
        assert answer.headers["content-type"] == STORED_MEDIA
        for damaged in (answer.content[:-9], answer.content[: len(answer.content) // 2]):
            with pytest.raises(Undecodable):
                fetch_answer(Answer(200, answer.headers, damaged))
