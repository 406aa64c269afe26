"""Who pays for which request.

A topic pays for all requests on its own objects, its segments and manifests. The write-ahead log is shared: of its
creates a topic has the parts that `Measurements` gave it, by the bytes in each entry; of all other requests on it (an
archiver's reads, deletions, the floor) a part by the bytes that the topic has put there. What is left is nobody's: the
journal of topics, the epochs of leaders. So the parts of all topics and the rest add up to every request made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelog.services.broker.telemetry.measurements import BrokerMeasurements
from tidelog.services.broker.telemetry.topic_counts import TopicCounts
from tidelog.storage.stores.counting import NO_REQUESTS, Kind, RequestCounts, Usage
from tidelog.storage.stores.wrapping import Verb


def topic_requests(measured: BrokerMeasurements) -> tuple[Mapping[str, RequestCounts], RequestCounts]:
    """The requests of each topic that has any, and those that are no topic's. Pure."""
    own = _own_requests(measured.usage)
    shared = replace(measured.usage.counts(kind=Kind.WAL), puts=0.0)
    wal_bytes = sum(counts.wal_bytes for counts in measured.topics.values())
    by_topic = {
        topic: own.get(topic, NO_REQUESTS)
        + RequestCounts(puts=counts.wal_puts)
        + shared.times(counts.wal_bytes / wal_bytes if wal_bytes else 0.0)
        for topic in own.keys() | measured.topics.keys()
        for counts in (measured.topics.get(topic, TopicCounts()),)
    }
    paid = sum(by_topic.values(), NO_REQUESTS)
    return by_topic, measured.usage.counts() + paid.times(-1)


def _own_requests(usage: Usage) -> Mapping[str, RequestCounts]:
    """On segments and manifests, by topic; one pass, however many topics there are."""
    tallies: dict[str, dict[Verb, int]] = {}
    for (purpose, verb), tally in usage.tallies.items():
        if purpose.topic:
            asked = tallies.setdefault(purpose.topic, {})
            asked[verb] = asked.get(verb, 0) + tally.requests
    return {topic: _counts(asked) for topic, asked in tallies.items()}


def _counts(asked: Mapping[Verb, int]) -> RequestCounts:
    return RequestCounts(
        puts=asked.get(Verb.PUT, 0) + asked.get(Verb.CREATE, 0),
        gets=asked.get(Verb.GET, 0),
        lists=asked.get(Verb.LIST, 0),
        heads=asked.get(Verb.HEAD, 0),
        deletes=asked.get(Verb.DELETE, 0),
    )
