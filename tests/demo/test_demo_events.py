"""The generator gives the same events for the same seed, and its columns agree with its JSON."""

import json
import uuid

import numpy as np
import pyarrow as pa
from demo.events import CHUNK_EVENTS, COUNTRIES, SERVICES, EventChunk, EventStream

EVENTS = 2 * CHUNK_EVENTS + 17


def chunks(seed: int, events: int = EVENTS) -> list[EventChunk]:
    return list(EventStream(seed).chunks(events))


def values(found: list[EventChunk]) -> list[bytes]:
    return [value for chunk in found for value in chunk.values.to_pylist()]


def test_a_seed_gives_the_same_stream_again() -> None:
    assert values(chunks(7)) == values(chunks(7))


def test_another_seed_gives_another_stream() -> None:
    assert values(chunks(7, 100)) != values(chunks(8, 100))


def test_it_gives_as_many_events_as_asked_for() -> None:
    assert [len(chunk) for chunk in chunks(7)] == [CHUNK_EVENTS, CHUNK_EVENTS, 17]


def test_a_longer_stream_begins_as_a_shorter_one() -> None:
    assert values(chunks(7))[:CHUNK_EVENTS] == values(chunks(7, CHUNK_EVENTS))


def test_every_value_is_json_that_says_what_the_columns_say() -> None:
    for chunk in chunks(7):
        for row, value in enumerate(chunk.values.to_pylist()):
            event = json.loads(value)
            assert event["service"] == SERVICES[chunk.service[row]]
            assert event["user"]["country"] == COUNTRIES[chunk.country[row]]
            assert event["user"]["id"].encode() == chunk.keys[row].as_py()
            assert event["request"]["status"] == chunk.status[row]
            assert event["request"]["duration_us"] == chunk.duration_us[row]
            assert event["amount_cents"] == chunk.amount_cents[row]


def test_only_purchases_have_an_amount() -> None:
    (chunk,) = chunks(7, 1000)
    bought = np.array([b'"type":"purchase"' in value for value in chunk.values.to_pylist()])
    assert bought.any()
    assert ((chunk.amount_cents > 0) == bought).all()


def test_times_ascend_over_chunks() -> None:
    times = pa.chunked_array([chunk.timestamps for chunk in chunks(7)]).cast(pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()


def test_events_are_of_a_realistic_size() -> None:
    sizes = [len(value) for value in values(chunks(7, 5000))]
    assert 300 < sum(sizes) / len(sizes) < 400


def test_ids_are_uuids_of_version_7_that_hold_the_events_time() -> None:
    for chunk in chunks(7, 100):
        for value, time in zip(chunk.values.to_pylist(), chunk.timestamps.cast(pa.int64()).to_pylist(), strict=True):
            found = uuid.UUID(json.loads(value)["event_id"])
            assert (found.version, found.variant) == (7, uuid.RFC_4122)
            assert found.int >> 80 == time


def test_a_user_keeps_country_and_agent() -> None:
    users = [json.loads(value)["user"] for value in values(chunks(7))]
    assert len({(user["id"], user["country"], user["agent"]) for user in users}) == len({user["id"] for user in users})


def test_ids_do_not_repeat() -> None:
    found = [json.loads(value)["event_id"] for value in values(chunks(7))]
    assert len(set(found)) == EVENTS
