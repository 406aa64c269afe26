"""Every error of Tidelog has a code of Kafka, which clients retry where the error says "try again"."""

from __future__ import annotations

import inspect

import pytest
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.protocol import error_codes
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.storage import errors

ALL = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.TidelogError)]
AGAIN = [each for each in ALL if issubclass(each, errors.Unavailable) and each is not errors.GroupFull]
OF_FETCH = {  # the codes that a Java consumer expects of Fetch; it ends on others
    ErrorCode.not_leader_or_follower,
    ErrorCode.kafka_storage_error,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.offset_out_of_range,
    ErrorCode.unknown_server_error,
}
READ_ERRORS = (
    errors.OutOfRange,
    errors.NotFound,
    errors.NoSuchObject,
    errors.Fenced,
    errors.Denied,
    errors.NewerFormat,
    errors.Corrupt,
    errors.RecordsLost,
    *AGAIN,
)


@pytest.mark.parametrize("kind", ALL)
def test_the_table_names_each_error(kind: type[errors.TidelogError]) -> None:
    assert kind in error_codes._TABLE


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("kind", [*AGAIN, errors.Fenced, errors.NoSuchObject])
def test_an_error_that_says_try_again_has_a_code_that_clients_retry(
    kind: type[errors.TidelogError], family: Family
) -> None:
    assert error_code(kind.__new__(kind), family).retriable


@pytest.mark.parametrize("kind", READ_ERRORS)
def test_fetch_has_codes_that_a_consumer_survives(kind: type[errors.TidelogError]) -> None:
    assert error_code(kind.__new__(kind), Family.READ) in OF_FETCH


def test_an_error_of_another_room_has_the_code_of_its_parent() -> None:
    class Elsewhere(errors.ProducerFenced):
        """Not in the table."""

    assert error_code(Elsewhere.__new__(Elsewhere), Family.WRITE) == ErrorCode.invalid_producer_epoch
