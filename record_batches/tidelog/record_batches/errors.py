"""What can be wrong with a record batch that a client sent."""

from __future__ import annotations


class CorruptBatch(ValueError):
    """Bytes that are not a record batch, or whose checksum is wrong. Kafka's CORRUPT_MESSAGE."""


class CutBatch(CorruptBatch):
    """The bytes end before the batch does. For Kafka there is no batch then: INVALID_RECORD."""


class InvalidBatch(ValueError):
    """A record batch that a producer may not send. Kafka's INVALID_RECORD."""


class UnsupportedBatch(ValueError):
    """A codec that is not known. Kafka's UNSUPPORTED_COMPRESSION_TYPE."""


class OldMagic(UnsupportedBatch):
    """Records of magic 0 or 1, as clients before Kafka 0.11 send them. Kafka 4's INVALID_RECORD."""


class TooLargeBatch(ValueError):
    """A batch whose decompressed records are `size` bytes or more, with `bytes_max` allowed. Kafka's
    MESSAGE_TOO_LARGE."""

    def __init__(self, size: int, bytes_max: int) -> None:
        super().__init__(f"the records of a batch have {size} bytes or more, and {bytes_max} are allowed")


class InvalidTimestampType(ValueError):
    """A timestamp type that a producer may not send. Kafka's INVALID_TIMESTAMP."""
