"""Checks the parts of a request against the limits of their topics and sets timestamps: `admission.py`, part by
part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.produce import PartDraft
from tidelog.services.broker.write.admission import admit
from tidelog.services.broker.write.placing import Routed
from tidelog.services.broker.write.routing import whole
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Clock


class PartAdmission:
    """`key_bytes_max`: ``key.max.bytes``."""

    def __init__(self, key_bytes_max: int, clock: Clock) -> None:
        self._key_bytes_max = key_bytes_max
        self._clock = clock

    def admit(
        self, parts: Sequence[PartDraft], topics: Sequence[Topic | TidelogError]
    ) -> Sequence[Routed | TidelogError]:
        """Each part as a share of its topic, or why it is refused."""
        now_ms = self._clock.now_ms()
        return [self._admit(part, topic, now_ms) for part, topic in zip(parts, topics, strict=True)]

    def _admit(self, part: PartDraft, topic: Topic | TidelogError, now_ms: int) -> Routed | TidelogError:
        if isinstance(topic, TidelogError):
            return topic
        try:
            admitted = admit(part.records, topic.config, key_bytes_max=self._key_bytes_max, now_ms=now_ms)
        except TidelogError as error:
            return error
        # a batch as it was sent has the timestamps of its producer
        sent = part.sent if topic.config.message_timestamp_type == "CreateTime" else None
        return topic, whole(part.partition, admitted, part.body_bytes, sent)


def without_errors(admitted: Sequence[Routed | TidelogError]) -> Iterator[Routed]:
    return (one for one in admitted if not isinstance(one, TidelogError))
