"""Faults that no service survives, which show that the judge detects a real loss."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import boto3
from botocore.config import Config
from infra.cluster.topology import BUCKET, CLUSTER_NAME, REGION
from tests.chaos.faults import Kill
from tests.chaos.world import World

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


def _bucket(world: World) -> Any:
    return boto3.resource(
        "s3",
        endpoint_url=world.cluster.url("minio"),
        region_name=REGION,
        aws_access_key_id=world.cluster.secrets.access_key_id,
        aws_secret_access_key=world.cluster.secrets.secret_access_key,
        config=Config(s3={"addressing_style": "path"}),
    ).Bucket(BUCKET)
