"""etcd's methods: the path, the request type and the response type of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import grpc.aio
from google.protobuf.message import Message

from tidelog.coordinator.etcd import rpc_pb2 as pb


class Answer(Protocol):
    """A response of etcd; every one has a header."""

    @property
    def header(self) -> pb.ResponseHeader: ...

    @classmethod
    def FromString(cls, s: bytes) -> Self: ...  # noqa: N802  # protobuf's name


_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Answer)

Metadata = Sequence[tuple[str, str]]
"""Sent with each call: the token, and the order to a member without a leader to refuse."""


@dataclass(frozen=True)
class _Method(Generic[_Request, _Response]):
    path: str
    request: type[_Request]
    response: type[_Response]


class Unary(_Method[_Request, _Response]):
    """A method with one request and one response."""

    def on(self, channel: grpc.aio.Channel) -> grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]:
        return channel.unary_unary(
            f"/etcdserverpb.{self.path}",
            request_serializer=self.request.SerializeToString,
            response_deserializer=self.response.FromString,
        )


class Stream(_Method[_Request, _Response]):
    """A method with a stream of requests and a stream of responses."""

    def on(self, channel: grpc.aio.Channel) -> grpc.aio.StreamStreamMultiCallable[_Request, _Response]:
        return channel.stream_stream(
            f"/etcdserverpb.{self.path}",
            request_serializer=self.request.SerializeToString,
            response_deserializer=self.response.FromString,
        )


RANGE = Unary("KV/Range", pb.RangeRequest, pb.RangeResponse)
TXN = Unary("KV/Txn", pb.TxnRequest, pb.TxnResponse)
LEASE_GRANT = Unary("Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
LEASE_REVOKE = Unary("Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
LEASE_KEEP_ALIVE = Stream("Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse)
WATCH = Stream("Watch/Watch", pb.WatchRequest, pb.WatchResponse)
AUTHENTICATE = Unary("Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)
