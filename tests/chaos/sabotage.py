"""Losses and mistakes that no service survives, which show that the judge detects them in a real run.

    outcome = SABOTAGES["forgets offsets at takeover"].run(folder, seed=7)
    assert outcome.verdict.broken[Rule.COMMIT_LOST]

In a sabotage of the brokers every broker has one of the `MUTATIONS` from its start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from infra.cluster.topology import BUCKET, CLUSTER_NAME, REGION, Shape
from tests.chaos.chaos_run import ChaosRun, Outcome
from tests.chaos.checker.violation import Rule
from tests.chaos.faults import Calm, Disturb, Fault, Kill
from tests.chaos.load.group_members import LATE_COMMIT
from tests.chaos.load.kafka_members import KAFKA_READS
from tests.chaos.load_process import LoadStatus
from tests.chaos.mutation_names import AND, MUTATION
from tests.chaos.network import Condition
from tests.chaos.schedule import Planned
from tests.chaos.world import LEASE_S, World, client_links

BROKER = "broker-1"
ENTRY = re.compile(r"/wal/\d+/\d+\.parquet$")


@dataclass(frozen=True)
class ForgottenEntries:
    """While the broker is down, somebody deletes the end of every WAL from the bucket. Nothing of that end may be
    archived, so that the rest is a log as it once was."""

    entries: int = 5
    duration_s: float = 0.0

    def begin(self, world: World) -> None:
        Kill((BROKER,), 0.0).begin(world)
        bucket = _bucket(world)
        entries = sorted(found.key for found in bucket.objects.filter(Prefix=f"{CLUSTER_NAME}/wal/"))
        for _, of_log in groupby(filter(ENTRY.search, entries), key=lambda key: key.rpartition("/")[0]):
            for key in list(of_log)[-self.entries :]:
                bucket.Object(key).delete()

    def end(self, world: World) -> None:
        Kill((BROKER,), 0.0).end(world)

    def __str__(self) -> str:
        return f"the last {self.entries} entries of every log deleted from the bucket"


@dataclass(frozen=True)
class Sabotage:
    """`rules`: what the judge must find broken, each of them. `faults` bring the mistake to light in a cluster of some
    shape, each after some seconds of work, and after so many operations as `chances` wants, which the load counts.
    `settings`: environment variables of the brokers."""

    rules: Sequence[Rule]
    faults: Callable[[Shape], Sequence[Fault]]
    settings: Mapping[str, str] = field(default_factory=dict)
    calm_s: float = 3.0
    chances: Mapping[str, int] = field(default_factory=dict)

    def run(self, folder: Path, *, seed: int, shape: Shape, told: Callable[[str], object] = str) -> Outcome:
        """Run it. The outcome does not hold if the judge is any good."""
        run = ChaosRun(folder, seed=seed, shape=shape, settings=self.settings, told=told)
        return run.of((Planned("sabotage", fault, self.calm_s) for fault in self.faults(shape)), self._had_chances)

    def _had_chances(self, status: LoadStatus) -> bool:
        return all(status.counts.get(operation, 0) >= count for operation, count in self.chances.items())

    def found(self, outcome: Outcome) -> str:
        """The first violation of each rule; empty if the judge has not found all of them broken."""
        broken, violations = outcome.verdict.broken, outcome.verdict.violations
        first = [next((each for each in violations if each.rule is rule), None) for rule in self.rules]
        told = [f"found {broken[each.rule]} times: {each}" for each in first if each is not None]
        return "\n".join(told) if len(told) == len(self.rules) else ""


def _broken(
    faults: Callable[[Shape], Sequence[Fault]],
    rules: Mapping[str, Rule],
    chances: Mapping[str, int] | None = None,
) -> Mapping[str, Sabotage]:
    """`rules`: the rule that each mutation breaks."""
    name = AND.join(rules)
    return {name: Sabotage(tuple(rules.values()), faults, {MUTATION: name}, chances=chances or {})}


def _takeovers(shape: Shape) -> Sequence[Fault]:
    """Each shard gets another leader, or a broker alone starts again."""
    names = shape.broker_names
    duration_s = LEASE_S + 1 if shape.etcd_nodes else 0.0
    return [Kill(killed, duration_s) for killed in (names[:-1] or names, names[-1:])]


def _answers_lost(shape: Shape) -> Sequence[Fault]:
    return [Disturb([name for broker in shape.broker_names for name in client_links(broker)], Condition.DEAF, 2.0)]


def _calm(duration_s: float) -> Callable[[Shape], Sequence[Fault]]:
    return lambda _: [Calm(duration_s)]


SABOTAGES: Mapping[str, Sabotage] = {
    "the bucket forgets": Sabotage(
        (Rule.LOST,), lambda _: [ForgottenEntries()], {"TIDELOG_ARCHIVER_INTERVAL_MS": "600000"}
    ),
    **_broken(
        _calm(3.0),
        {"accepts commits of old epochs": Rule.STALE_COMMIT, "leaves out records for Kafka": Rule.SKIPPED},
        {LATE_COMMIT: 1, KAFKA_READS: 20},
    ),
    **_broken(_answers_lost, {"forgets sequences of Kafka": Rule.DUPLICATED}),
    **_broken(_calm(15.0), {"assigns before revoke is confirmed": Rule.TWO_OWNERS}),
    **_broken(_takeovers, {"forgets offsets at takeover": Rule.COMMIT_LOST}),
    **_broken(_calm(1.0), {"commits past what was read": Rule.UNREAD}),
    **_broken(_takeovers, {"skips a batch after takeover": Rule.SKIPPED}),
}


def _bucket(world: World) -> Any:
    return boto3.resource(
        "s3",
        endpoint_url=world.cluster.url("minio"),
        region_name=REGION,
        aws_access_key_id=world.cluster.secrets.access_key_id,
        aws_secret_access_key=world.cluster.secrets.secret_access_key,
        config=Config(s3={"addressing_style": "path"}),
    ).Bucket(BUCKET)
