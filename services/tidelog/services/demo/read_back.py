"""Reading the topic back over HTTP, from the first record to the last, into fingerprints."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidelog.client import Consumer
from tidelog.services.demo.fingerprint import Column, Fingerprint
from tidelog.services.demo.narrator import Narrator, Rates
from tidelog.storage.errors import Corrupt

POLL_SECONDS = 10.0


def read_back(url: str, topic: str, partitions: int, records: int, narrator: Narrator) -> Sequence[Fingerprint]:
    """A fingerprint of each partition as the broker gives it now. Ends early if it has less than `records`; what is
    missing shows in the fingerprints. Raises `Corrupt` if offsets do not follow each other."""
    prints = [Fingerprint() for _ in range(partitions)]
    with Rates(narrator, "fetched", records) as rates, Consumer(url, topic, start="earliest") as consumer:
        while rates.records < records:
            batch = consumer.poll(timeout_s=POLL_SECONDS)
            if batch is None:
                break
            before = prints[batch.partition].value_bytes
            _add(prints[batch.partition], batch.partition, batch.records)
            rates.add(batch.records.num_rows, prints[batch.partition].value_bytes - before)
    return prints


def _add(fingerprint: Fingerprint, partition: int, records: pa.Table) -> None:
    offset = fingerprint.records
    for batch in records.to_batches():
        given: Column = batch.column("offset")
        if len(given) and (given[0].as_py(), given[-1].as_py()) != (offset, offset + len(given) - 1):
            raise Corrupt(f"partition {partition}", f"offset {given[0].as_py()} came where {offset} was next")
        fingerprint.update(batch.column("key"), batch.column("value"))
        offset += len(given)
