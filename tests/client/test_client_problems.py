"""Each refusal of the HTTP interface becomes the same error again in the client."""

import msgspec
import pytest
from tests.http.requests import answer_to

from tidelog.storage import errors
from tidelog.wire.errors import RETRY_AFTER_S
from tidelog.wire.errors import error_of_answer as error_of

TOLD = [
    errors.Invalid("a", field="value", record=3),
    errors.OutOfRange("b", log_start_offset=3, high_watermark=9),
    errors.TooLarge("c", limit_name="max.message.bytes", limit_bytes=10, record=0),
    errors.UnsupportedMedia("d", known=("text/plain",)),
    errors.NotFound("e"),
    errors.AlreadyExists("f"),
    errors.OffsetConflict("g", next_offset=4),
    errors.SequenceConflict("h", expected_sequence=5),
    errors.ProducerFenced("i", current_epoch=6),
    errors.Conflict("j"),
    errors.Fenced("k"),
    errors.Denied("l"),
    errors.Unavailable("m"),
]


@pytest.mark.parametrize("error", TOLD, ids=lambda error: type(error).__name__)
def test_an_error_crosses_http_whole(error: errors.TidelogError) -> None:
    response = answer_to(error)
    back = error_of(response.status_code, response.headers, bytes(response.body))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert {"committed": (), **vars(back)} == {"committed": (), **vars(error)}


def test_overloaded_tells_when_to_come_back() -> None:
    response = answer_to(errors.Overloaded("full", retry_after_s=2.0))
    back = error_of(response.status_code, response.headers, bytes(response.body))
    assert isinstance(back, errors.Overloaded)
    assert back.retry_after_s == 2.0


def test_a_leader_elsewhere_or_nowhere_took_nothing_and_may_be_asked_again() -> None:
    for error in (errors.NotLeader("n", leader="http://10.0.0.7:8080"), errors.LeaderUnknown("o", retry_after_s=0.1)):
        response = answer_to(error)
        back = error_of(response.status_code, response.headers, bytes(response.body))
        assert isinstance(back, errors.Overloaded)
        assert {"committed": (), **vars(back)} == {"committed": (), **vars(error), "retry_after_s": 1.0}


def test_partitions_in_the_log_are_reported_with_an_unknown_outcome() -> None:
    for error in (errors.Fenced("k"), errors.Unavailable("m")):
        error.committed = (0, 2)
        response = answer_to(error)
        back = error_of(response.status_code, response.headers, bytes(response.body))
        assert vars(back)["committed"] == (0, 2)


def test_an_overload_without_a_time_comes_back_after_the_default() -> None:
    back = error_of(429, {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, b"")
    assert isinstance(back, errors.Overloaded)
    assert back.retry_after_s == RETRY_AFTER_S


@pytest.mark.parametrize(
    ("status", "kind"),
    [(502, errors.Unavailable), (401, errors.Denied), (404, errors.NotFound), (418, errors.Invalid)],
)
def test_an_answer_that_is_not_a_problem_is_judged_by_its_status(status: int, kind: type[errors.TidelogError]) -> None:
    assert type(error_of(status, {}, b"<html>")) is kind


def test_a_damaged_object_keeps_its_name() -> None:
    body = msgspec.json.encode({"code": "corrupt", "detail": "wal/1 is short", "object": "wal/1"})
    back = error_of(500, {}, body)
    assert isinstance(back, errors.Corrupt)
    assert back.name == "wal/1"
