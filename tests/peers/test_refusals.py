"""A peer's refusal becomes the same error again, for every class of error."""

from __future__ import annotations

import math

import pytest
from tests.http.requests import answer_to

from tidelog.services.peers.pool import error_of
from tidelog.storage import errors
from tidelog.wire.errors import (
    ERRORS,
    BodyTimeout,
    ClientGone,
    HostRefused,
    NotAcceptable,
    OriginRefused,
    PeerUnproved,
    Unreadable,
    mapping_of,
)


def every_kind(root: type[errors.TidelogError]) -> list[type[errors.TidelogError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in every_kind(child))]


SAMPLES: tuple[errors.TidelogError, ...] = (
    Unreadable("x", field="acks"),
    NotAcceptable("x", known=("a/b",)),
    BodyTimeout("x"),
    ClientGone("x"),
    HostRefused("x"),
    OriginRefused("x"),
    PeerUnproved("x"),
    errors.Invalid("x", field="key"),
    errors.OutOfRange("x", log_start_offset=1, high_watermark=9),
    errors.TooLarge("x", limit_name="request.max.bytes", limit_bytes=9),
    errors.UnsupportedMedia("x", known=("a/b", "c/d")),
    errors.NotFound("x"),
    errors.Conflict("x"),
    errors.AlreadyExists("x"),
    errors.OffsetConflict("x", next_offset=7),
    errors.SequenceConflict("x", expected_sequence=3),
    errors.ProducerFenced("x", current_epoch=2),
    errors.UnknownMember("x"),
    errors.MemberFenced("x"),
    errors.StaleMemberEpoch("x"),
    errors.InstanceInUse("x"),
    errors.GroupNotEmpty("x"),
    errors.WrongGroupKind("x"),
    errors.MemberIdRequired("x", member_id="m"),
    errors.RebalanceInProgress("x"),
    errors.GroupFull("x", retry_after_s=10.0),
    errors.Fenced("x"),
    errors.Denied("x"),
    errors.Unavailable("x"),
    errors.Overloaded("x", retry_after_s=2.5),
    errors.NotLeader("x", leader="http://10.0.0.7:8080"),
    errors.LeaderUnknown("x", retry_after_s=0.1),
    errors.Corrupt("wal/0000/1.parquet", "cut off"),
    errors.NewerFormat("x"),
)


def told(error: errors.TidelogError) -> errors.TidelogError:
    response = answer_to(error)
    return error_of(response.status_code, response.headers, bytes(response.body))


def test_there_is_a_sample_of_every_kind_that_has_a_verdict() -> None:
    assert {type(sample) for sample in SAMPLES} == {row.error for row in ERRORS} - {errors.NoSuchObject}
    kinds = {kind for kind in every_kind(errors.TidelogError)[1:] if kind.__module__ == errors.__name__}
    without = kinds - {type(sample) for sample in SAMPLES}
    assert without - {errors.NoSuchObject} == {errors.Contended, errors.RecordsLost, errors.UnknownGroup}, (
        "told as what it is a kind of"
    )


def test_a_missing_object_is_not_reported_as_a_missing_topic() -> None:
    """Clients take `not_found` as final; after `unavailable` they ask another broker."""
    assert type(told(errors.NoSuchObject("get s3://b/wal/1: there is no such object"))) is errors.Unavailable


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_it_was(error: errors.TidelogError) -> None:
    back = told(error)
    assert type(back) is (mapping_of(type(error)).read_as or type(error))
    assert str(back) == str(error)
    members = dict(vars(error))
    if "retry_after_s" in members:
        members["retry_after_s"] = math.ceil(members["retry_after_s"])
    assert {name: vars(back)[name] for name in members} == members


def test_committed_partitions_come_back_with_an_unknown_outcome() -> None:
    for error in (errors.Unavailable("x"), errors.Fenced("x")):
        error.committed = (0, 2)
        back = told(error)
        assert isinstance(back, errors.Unavailable | errors.Fenced)
        assert back.committed == (0, 2)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"code":7}', b'{"code":"new"}', b'{"code":"not_leader"}'])
def test_an_answer_that_nobody_understands_says_nothing_of_the_outcome(body: bytes) -> None:
    back = error_of(503, {}, body)
    assert type(back) is errors.Unavailable


@pytest.mark.parametrize("status", [400, 404, 429, 500, 502])
def test_an_answer_that_the_table_does_not_have_is_unavailable(status: int) -> None:
    """A proxy's 404 must not become `NotFound`: it says nothing about the topic."""
    assert type(error_of(status, {}, b'{"code":"new","detail":"x"}')) is errors.Unavailable
