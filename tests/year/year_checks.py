"""Checks of the year's records, read over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from demo.agreement import Fingerprint
from tests.year.year_source import NewestOfKeys, YearSource

from tidelog.client import Admin, Batch, Consumer

PASS_MS = 120_000
"""How long a segment may be past its retention before a pass removes it."""


@dataclass(frozen=True)
class Check:
    """`shown`: the figures of the check."""

    name: str
    holds: bool
    shown: str


def check_clicks(url: str, source: YearSource) -> Check:
    """Each record is there once, in order."""
    topic = source.topics[0]
    prints = [Fingerprint() for _ in range(topic.partitions)]
    for batch in _all(url, topic.name):
        for records in batch.records.to_batches():
            prints[batch.partition].update(records.column("key"), records.column("value"))
    same = [mine.hexdigest() == theirs.hexdigest() for mine, theirs in zip(source.fingerprints, prints, strict=True)]
    shown = f"{sum(each.records for each in prints):,} of {sum(source.records[topic.name]):,} records"
    return Check("clicks: each record once, in order", all(same), shown)


def check_sessions(url: str, source: YearSource) -> Check:
    """Records past their retention leave with whole segments; all younger records are there."""
    topic = source.topics[1]
    kept_ms = int(str(topic.configs["retention.ms"]))
    judged_ms = int(time.time() * 1_000)
    with Admin(url) as admin:
        log = admin.topic_log(topic.name)
    logs = log.partitions
    ends = [found.high_watermark for found in logs]
    oldest = [segment.max_timestamp for segment in log.segments]
    expired = all(at_ms >= judged_ms - kept_ms - PASS_MS for at_ms in oldest)
    held = sum(log.high_watermark - log.log_start_offset for log in logs)
    whole = ends == source.records[topic.name] and held >= source.younger_than(topic.name, kept_ms, judged_ms)
    shown = f"{held:,} of {sum(ends):,} records are kept"
    return Check("sessions: retention", expired and whole, shown)


def check_profiles(url: str, source: YearSource) -> Check:
    """A reader of everything ends with the newest value of each key."""
    topic = source.topics[2]
    found = NewestOfKeys()
    for batch in _all(url, topic.name):
        found.update(batch.records["key"], batch.records["value"])
    wanted = source.newest.table()
    shown = f"{found.rows:,} of {sum(source.records[topic.name]):,} records are left, {wanted.num_rows:,} keys"
    return Check("profiles: the newest record of each key", found.table().equals(wanted), shown)


def _all(url: str, topic: str) -> Iterator[Batch]:
    with Consumer(url, topic, start="earliest") as consumer:
        yield from consumer.batches(follow=False)
