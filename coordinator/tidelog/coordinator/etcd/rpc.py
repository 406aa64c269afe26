"""etcd's methods, typed: where each is found and what it takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc.aio

from tidelog.coordinator.etcd import rpc_pb2 as pb

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")

Metadata = Sequence[tuple[str, str]]
"""What goes with a call: the token, and that a member without a leader shall refuse."""


@dataclass(frozen=True)
class Unary(Generic[_Request, _Response]):
    """A method of one request and one response."""

    path: str
    encode: Callable[[_Request], bytes]
    decode: Callable[[bytes], _Response]

    def on(self, channel: grpc.aio.Channel) -> grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]:
        """To be called."""
        return channel.unary_unary(self.path, request_serializer=self.encode, response_deserializer=self.decode)


@dataclass(frozen=True)
class Stream(Generic[_Request, _Response]):
    """A method of many requests and many responses."""

    path: str
    encode: Callable[[_Request], bytes]
    decode: Callable[[bytes], _Response]

    def on(self, channel: grpc.aio.Channel) -> grpc.aio.StreamStreamMultiCallable[_Request, _Response]:
        """To be called."""
        return channel.stream_stream(self.path, request_serializer=self.encode, response_deserializer=self.decode)


RANGE = Unary[pb.RangeRequest, pb.RangeResponse](
    "/etcdserverpb.KV/Range", pb.RangeRequest.SerializeToString, pb.RangeResponse.FromString
)
PUT = Unary[pb.PutRequest, pb.PutResponse](
    "/etcdserverpb.KV/Put", pb.PutRequest.SerializeToString, pb.PutResponse.FromString
)
DELETE_RANGE = Unary(
    "/etcdserverpb.KV/DeleteRange", pb.DeleteRangeRequest.SerializeToString, pb.DeleteRangeResponse.FromString
)
TXN = Unary[pb.TxnRequest, pb.TxnResponse](
    "/etcdserverpb.KV/Txn", pb.TxnRequest.SerializeToString, pb.TxnResponse.FromString
)
LEASE_GRANT = Unary(
    "/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest.SerializeToString, pb.LeaseGrantResponse.FromString
)
LEASE_REVOKE = Unary(
    "/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest.SerializeToString, pb.LeaseRevokeResponse.FromString
)
LEASE_KEEP_ALIVE = Stream(
    "/etcdserverpb.Lease/LeaseKeepAlive",
    pb.LeaseKeepAliveRequest.SerializeToString,
    pb.LeaseKeepAliveResponse.FromString,
)
WATCH = Stream[pb.WatchRequest, pb.WatchResponse](
    "/etcdserverpb.Watch/Watch", pb.WatchRequest.SerializeToString, pb.WatchResponse.FromString
)
AUTHENTICATE = Unary(
    "/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest.SerializeToString, pb.AuthenticateResponse.FromString
)
