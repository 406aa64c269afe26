"""Divides the requests to the store among the topics.

- A topic gets all requests on its own objects: its segments.
- The creates of WAL entries are divided by the bytes of each entry (`Measurements`).
- All other requests on the WAL and on the manifests of shards (the archiver's reads, appends, deletions) are divided by
  the bytes that each topic has written to the WAL.
- The rest belongs to no topic: the journal, the epochs of leaders.

So the shares of all topics and the rest add up to every request made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelog.services.broker.api.costs import TopicCounts
from tidelog.services.broker.telemetry.measurements import BrokerMeasurements
from tidelog.storage.stores.counting import NO_REQUESTS, Kind, RequestCounts, Usage
from tidelog.storage.stores.wrapping import Verb


def topic_requests(measured: BrokerMeasurements) -> tuple[Mapping[str, RequestCounts], RequestCounts]:
    """The requests by topic, and the rest. Pure."""
    own = _own_requests(measured.usage)
    shared = replace(measured.usage.counts(kind=Kind.WAL), puts=0.0) + measured.usage.counts(kind=Kind.MANIFEST)
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
    """Requests on segments, by topic; one pass over all counts."""
    tallies: dict[str, dict[Verb, int]] = {}
    for (purpose, verb), tally in usage.tallies.items():
        if purpose.topic:
            made = tallies.setdefault(purpose.topic, {})
            made[verb] = made.get(verb, 0) + tally.requests
    return {topic: _counts(made) for topic, made in tallies.items()}


def _counts(made: Mapping[Verb, int]) -> RequestCounts:
    return RequestCounts(
        puts=made.get(Verb.PUT, 0) + made.get(Verb.CREATE, 0),
        gets=made.get(Verb.GET, 0),
        lists=made.get(Verb.LIST, 0),
        heads=made.get(Verb.HEAD, 0),
        deletes=made.get(Verb.DELETE, 0),
    )
