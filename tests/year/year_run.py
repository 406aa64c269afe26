"""Runs one year: produces through a broker that is killed and restarted, lets upkeep finish, reads and verifies.

source ─▶ Producer (Arrow over HTTP, idempotent) ─▶ tidelog serve ─▶ bucket
                  kill -9, SIGTERM on the way            ▲ its own upkeep
then: at rest? ─▶ a new broker ─▶ single reads ─▶ everything read ─▶ tidelog bucket verify
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog
from tests.year.year_checks import Check, check_clicks, check_profiles, check_sessions
from tests.year.year_outcome import Fault, KindOfObject, Place, YearOptions, YearOutcome
from tests.year.year_reads import ColdReader, Reads
from tests.year.year_recovery import check_recovered
from tests.year.year_source import MIB, YearSource, year_topics

from tidelog.client import Admin, Producer, ProducerOptions, SegmentDescription
from tidelog.client.costs import ClusterCost, CostDescription, TopicCostDescription
from tidelog.storage.bucket.finding import Summary

DISK_LEFT_BYTES_MIN = 2 * 10**9
TELL_EVERY_S = 5.0
POLL_S = 0.5
REQUESTS_A_READ_MAX = 3
KINDS = (
    ("WAL entries", r"wal/\d+/\d"),
    ("index of the WAL", r"wal/\d+/_index/"),
    ("manifests", r"manifests/\d+/\d"),
    ("lists of segments", r"manifests/\d+/lists/"),
    ("history of manifests", r"manifests/\d+/history/"),
    ("segments", "topics/"),
    ("journal", "meta/"),
)
OPTIONS = ProducerOptions(request_bytes=4 * MIB, buffer_bytes=32 * MIB, linger_ms=50)


class YearRun:
    """One use. `told` is called with progress."""

    def __init__(self, place: Place, options: YearOptions, told: Callable[[str], None]) -> None:
        self._place = place
        self._options = options
        self._told = told
        self._topics = year_topics(options.segment_bytes)
        self._source = YearSource(options.gigabytes, options.days, options.seed, int(time.time() * 1_000), self._topics)
        self._broker = BrokerProcess(place.folder, _settings(place, options), place.environment, forked=False)
        self._past: list[CostDescription] = []
        self._faults: list[Fault] = []
        self._stopped_early = ""

    def run(self) -> YearOutcome:
        try:
            self._broker.start()
            return self._year()
        finally:
            self._broker.stop()

    def _year(self) -> YearOutcome:
        with Admin(self._broker.url) as admin:
            for topic in self._topics:
                admin.create_topic(topic.name, topic.partitions, topic.configs)
        began_s = time.monotonic()
        self._produce()
        produced_s = time.monotonic()
        at_rest = self._settle()
        settled_s = time.monotonic()
        reads = self._read_singly()
        replay_began_s = time.monotonic()
        checks = self._check_records()
        replayed_s = time.monotonic()
        checks.append(Check("upkeep comes to rest", at_rest, f"within {settled_s - produced_s:.0f} s"))
        segments, costs = self._segments(), ClusterCost((*self._past, self._cost()))
        kinds = self._kinds()
        verify_began_s = time.monotonic()
        verified = self._verify()
        verify_s = time.monotonic() - verify_began_s
        if self._options.etcd:
            self._told("recovering it into an empty etcd")
            self._broker.stop()
            checks.append(check_recovered(self._place, self._source, self._options.etcd))
        return YearOutcome(
            options=self._options,
            records=self._source.records,
            raw_bytes=self._source.raw_bytes,
            produce_s=produced_s - began_s,
            stopped_early=self._stopped_early,
            faults=self._faults,
            settled_s=settled_s - produced_s,
            at_rest=at_rest,
            costs=costs,
            kinds=kinds,
            segments=segments,
            reads=reads,
            replay_s=replayed_s - replay_began_s,
            verified=verified,
            verify_s=verify_s,
            checks=(*checks, *_judged(reads, verified, costs)),
        )

    # ---- producing

    def _produce(self) -> None:
        due = [self._source.events * (n + 1) // (self._options.faults + 1) for n in range(self._options.faults)]
        sent, told_s = 0, time.monotonic()
        with contextlib.ExitStack() as stack:
            producers = {
                topic.name: stack.enter_context(Producer(self._broker.url, topic.name, OPTIONS))
                for topic in self._topics
            }
            for topic, batch in self._source.batches():
                producers[topic.name].send_batch(batch)
                sent += batch.num_rows
                if due and sent >= due[0]:
                    due.pop(0)
                    self._strike("SIGTERM, and a new start" if len(self._faults) % 2 else "kill -9")
                if time.monotonic() - told_s > TELL_EVERY_S:
                    told_s = time.monotonic()
                    self._told(f"day {self._day()}: {sent:,} of {self._source.events:,} events")
                    if self._disk_is_full():
                        break
            for producer in producers.values():
                producer.flush()

    def _strike(self, what: str) -> None:
        self._past.append(_without_gauges(self._cost()))
        began_s = time.monotonic()
        if what == "kill -9":
            self._broker.kill()
        else:
            self._broker.stop()
        self._broker.start()
        self._faults.append(Fault(what, self._day(), time.monotonic() - began_s))
        self._told(f"day {self._faults[-1].day}: {what}, away for {self._faults[-1].away_s:.1f} s")

    def _restart(self, why: str) -> None:
        self._past.append(_without_gauges(self._cost()))
        self._broker.stop()
        self._broker.start()
        self._told(why)

    def _day(self) -> int:
        return (self._source.reached_ms - self._source.began_ms) // 86_400_000

    def _disk_is_full(self) -> bool:
        left = shutil.disk_usage(self._place.folder).free
        if left < DISK_LEFT_BYTES_MIN:
            self._stopped_early = f"stopped at day {self._day()}: {left / 1e9:.1f} GB are left on the disk"
            self._told(self._stopped_early)
        return bool(self._stopped_early)

    # ---- coming to rest

    def _settle(self) -> bool:
        """Wait until nothing changes any more; return whether that happened within `settle_s`."""
        give_up_s = time.monotonic() + self._options.settle_s
        seen, since_s = None, time.monotonic()
        while time.monotonic() < give_up_s:
            total = self._cost_total()
            now = (total.debt_bytes, total.segments, total.cold_bytes, total.garbage_bytes, total.hot_bytes)
            if now != seen:
                seen, since_s = now, time.monotonic()
                self._told(
                    f"owed {total.debt_bytes / 1e6:,.0f} MB, cold {total.cold_bytes / 1e6:,.0f} MB in {total.segments} "
                    f"segments, garbage {total.garbage_bytes / 1e6:,.0f} MB"
                )
            waits = total.debt_bytes or (self._options.tidy and (total.garbage_bytes or total.hot_bytes))
            if not waits and time.monotonic() - since_s >= self._options.quiet_s:
                return True
            time.sleep(POLL_S)
        return False

    # ---- looking at it

    def _read_singly(self) -> list[Reads]:
        reads = []
        for sort in (ColdReader.by_offset, ColdReader.by_time):
            if self._options.fresh_reads:
                self._restart("a new broker, for single reads")
            with contextlib.closing(ColdReader(self._broker.url, self._topics[0].name, self._options.seed)) as reader:
                reads.append(sort(reader, self._options.reads))
        return reads

    def _check_records(self) -> list[Check]:
        self._told("reading everything")
        url = self._broker.url
        return [
            check_clicks(url, self._source),
            check_sessions(url, self._source),
            check_profiles(url, self._source),
        ]

    def _segments(self) -> Mapping[str, Sequence[SegmentDescription]]:
        with Admin(self._broker.url) as admin:
            return {topic.name: admin.topic_log(topic.name).segments for topic in self._topics}

    def _cost(self) -> CostDescription:
        with Admin(self._broker.url) as admin:
            return admin.cost()

    def _cost_total(self) -> TopicCostDescription:
        return ClusterCost((self._cost(),)).total

    def _kinds(self) -> list[KindOfObject]:
        totals: dict[str, list[int]] = {}
        for key, size in self._objects():
            totals.setdefault(_kind(key), []).append(size)
        return [KindOfObject(kind, len(sizes), sum(sizes)) for kind, sizes in sorted(totals.items())]

    def _objects(self) -> Iterator[tuple[str, int]]:
        run = run_tidelog(["bucket", "ls", "--json", "--store", self._place.store], environment=self._place.environment)
        assert run.returncode == 0, run.stderr
        for line in run.stdout.splitlines():
            found = msgspec.json.decode(line)
            yield found["key"], found["size"]

    def _verify(self) -> Summary:
        run = run_tidelog(
            ["bucket", "verify", "--deep", "--json", "--store", self._place.store],
            environment=self._place.environment,
            timeout_s=1_800,
        )
        assert run.stdout.strip(), run.stderr
        return msgspec.convert(msgspec.json.decode(run.stdout.splitlines()[-1])["summary"], Summary)


def _settings(place: Place, options: YearOptions) -> Mapping[str, object]:
    """Upkeep scaled down like the year: smaller segments, shorter intervals, the shortest grace."""
    return {
        "store": place.store,
        "archiver.interval.ms": options.archiver_interval_ms,
        "archiver.min.bytes": options.segment_bytes // 8,
        "archiver.batch.bytes": options.segment_bytes,
        "delete.grace.ms": 60_000,
    }


def _without_gauges(cost: CostDescription) -> CostDescription:
    """The requests and writes of a broker's life, without stored bytes, which the next life reports."""
    totals = (
        replace(
            TopicCostDescription.summed(topic.topic, ()),
            requests=topic.requests,
            records_in=topic.records_in,
            bytes_in=topic.bytes_in,
            archived_bytes=topic.archived_bytes,
            merged_bytes=topic.merged_bytes,
            compacted_bytes=topic.compacted_bytes,
        )
        for topic in cost.topics
    )
    return replace(cost, topics=tuple(totals))


def _kind(key: str) -> str:
    return next((kind for kind, pattern in KINDS if re.match(pattern, key)), "other")


def _judged(reads: Sequence[Reads], verified: Summary, costs: ClusterCost) -> Iterator[Check]:
    for read in reads:
        right = not read.wrong and read.requests_max <= REQUESTS_A_READ_MAX
        shown = f"{read.requests_max} requests at the most; wrong: {', '.join(read.wrong) or 'none'}"
        yield Check(f"reads by {read.what}", right, shown)
    yield Check("tidelog bucket verify --deep", verified.sound, f"{verified.errors} errors, {verified.orphans} orphans")
    for topic in costs.topics:
        if topic.topic != "profiles":
            amplification = topic.write_amplification or 0.0
            yield Check(f"write amplification of {topic.topic}", amplification <= 3.0, f"{amplification:.2f}")
