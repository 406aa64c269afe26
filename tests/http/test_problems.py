"""Every error has one status, decided in one place."""

from __future__ import annotations

import logging
from collections import Counter

import msgspec
import pytest
from starlette.exceptions import HTTPException
from tests.http.requests import answer_to

from tidelog.storage import errors
from tidelog.wire.errors import (
    INTERNAL,
    BodyTimeout,
    HostRefused,
    NotAcceptable,
    OriginRefused,
    PeerUnproved,
    Unreadable,
    mapping_of,
)


def every_kind(root: type[errors.TidelogError]) -> list[type[errors.TidelogError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in every_kind(child))]


@pytest.mark.parametrize(
    ("error", "status", "code", "extra"),
    [
        (Unreadable("x", field="acks"), 400, "invalid", {"field": "acks"}),
        (errors.Invalid("x", field="key"), 422, "invalid", {"field": "key"}),
        (errors.NotFound("x"), 404, "not_found", {}),
        (NotAcceptable("x", known=("a/b",)), 406, "not_acceptable", {"known": ["a/b"]}),
        (errors.UnsupportedMedia("x", known=("a/b",)), 415, "unsupported_media_type", {"known": ["a/b"]}),
        (HostRefused("x"), 403, "host_not_allowed", {}),
        (OriginRefused("x"), 403, "origin_not_allowed", {}),
        (PeerUnproved("x"), 401, "peer_unproved", {}),
        (BodyTimeout("x"), 408, "request_timeout", {}),
        (errors.AlreadyExists("x"), 409, "already_exists", {}),
        (errors.OffsetConflict("x", next_offset=7), 409, "offset_conflict", {"next_offset": 7}),
        (errors.SequenceConflict("x", expected_sequence=3), 409, "sequence_conflict", {"expected_sequence": 3}),
        (errors.ProducerFenced("x", current_epoch=2), 409, "producer_fenced", {"current_epoch": 2}),
        (
            errors.TooLarge("x", limit_name="request.max.bytes", limit_bytes=9),
            413,
            "too_large",
            {"limit_name": "request.max.bytes", "limit_bytes": 9},
        ),
        (
            errors.OutOfRange("x", log_start_offset=1, high_watermark=9),
            416,
            "out_of_range",
            {"field": "offset", "log_start_offset": 1, "high_watermark": 9},
        ),
        (errors.Corrupt("wal/0000/1.parquet", "cut off"), 500, "corrupt", {"object": "wal/0000/1.parquet"}),
        (errors.Denied("x"), 503, "denied", {"committed": []}),
        (HTTPException(405), 405, "method_not_allowed", {}),
        (HTTPException(404), 404, "not_found", {}),
    ],
)
def test_an_error_is_reported_by_its_status_its_code_and_its_own_fields(
    error: Exception, status: int, code: str, extra: dict[str, object]
) -> None:
    members = msgspec.json.decode(answer_to(error).body)
    assert members.pop("type") == "about:blank"
    assert members.pop("title")
    assert members.pop("request_id") == "id-1"
    assert members.pop("detail")
    assert members == {"status": status, "code": code, **extra}


def test_no_kind_of_error_is_an_internal_one() -> None:
    kinds = every_kind(errors.TidelogError)[1:]
    assert len(kinds) > 15
    assert [kind for kind in kinds if mapping_of(kind) is INTERNAL] == []


def test_retryable_problems_say_when_to_retry() -> None:
    assert answer_to(errors.Overloaded("x", retry_after_s=2.5)).headers["retry-after"] == "3"
    assert answer_to(errors.Unavailable("x")).headers["retry-after"] == "1"
    assert "retry-after" not in answer_to(errors.Invalid("x")).headers


def test_an_unknown_outcome_names_the_partitions_that_are_in_the_log() -> None:
    error = errors.Unavailable("x")
    error.committed = (0, 2)
    assert msgspec.json.decode(answer_to(error).body)["committed"] == [0, 2]


def test_an_unexpected_error_is_not_shown_to_the_client() -> None:
    answer = answer_to(RuntimeError("password=secret"))
    assert (answer.status_code, msgspec.json.decode(answer.body)["code"]) == (500, "internal")
    assert b"secret" not in answer.body


def test_half_a_surrogate_pair_in_a_message_can_be_sent() -> None:
    assert b"udcff" in answer_to(errors.NotFound("topic \udcff")).body


@pytest.mark.parametrize(("from_peer", "level"), [(False, "ERROR"), (True, "DEBUG")])
def test_a_shard_that_moved_is_a_failure_to_a_client_and_none_to_a_peer(
    from_peer: bool, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tally: Counter[tuple[int, str]] = Counter()
    answer_to(errors.LeaderUnknown("nobody leads shard 1", retry_after_s=0.1), tally, from_peer=from_peer)
    assert [record.levelname for record in caplog.records] == [level]
    assert caplog.records[0].fields["request_id"] == "id-1"  # type: ignore[attr-defined]  # as `extra` gives it
    assert tally == {(503, "leader_unknown"): 1}
