"""Whether the store is still the one it was.

Every answer names etcd's cluster and, if it is linearizable, a revision and a raft term at least as high as any that
was known when the call began. An answer from another cluster, or one that went back, means that the data directory was
wiped or put back to an older state. The cluster's id alone would not tell: etcd makes it from the members' addresses
and a token, so that a store that was wiped and set up in the same way has the same id.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tidelog.coordinator.etcd import rpc_pb2 as pb

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Mark:
    """How far the store was known to be at some moment."""

    cluster_id: int
    revision: int
    raft_term: int
    set_backs: int

    @property
    def incarnation(self) -> str:
        """Another text, another store. The set-backs are those that this process has seen."""
        return f"{self.cluster_id:016x}" + (f"-{self.set_backs}" if self.set_backs else "")


class Sightings:
    """What was seen of the store so far."""

    def __init__(self) -> None:
        self._mark: Mark | None = None

    @property
    def mark(self) -> Mark | None:
        """To be kept when a call begins, for `note`; None before the first answer."""
        return self._mark

    def note(self, header: pb.ResponseHeader, *, begun: Mark | None, linearizable: bool) -> None:
        """Take in the header of an answer to a call that began when `begun` was known."""
        known = self._mark
        if known is None or known.cluster_id != header.cluster_id:
            self._begin_anew(header, known)
        elif linearizable and begun is not None and _is_behind(header, begun) and begun.set_backs == known.set_backs:
            self._set_back(header, known)
        elif linearizable:
            revision, term = max(known.revision, header.revision), max(known.raft_term, header.raft_term)
            self._mark = Mark(known.cluster_id, revision, term, known.set_backs)

    def _begin_anew(self, header: pb.ResponseHeader, known: Mark | None) -> None:
        if known is not None:
            _log.warning("etcd: cluster %x answers where cluster %x did", header.cluster_id, known.cluster_id)
        self._mark = Mark(header.cluster_id, header.revision, header.raft_term, known.set_backs if known else 0)

    def _set_back(self, header: pb.ResponseHeader, known: Mark) -> None:
        _log.warning("etcd: went back from revision %d to %d: wiped, or restored", known.revision, header.revision)
        self._mark = Mark(known.cluster_id, header.revision, header.raft_term, known.set_backs + 1)


def _is_behind(header: pb.ResponseHeader, begun: Mark) -> bool:
    same_cluster = header.cluster_id == begun.cluster_id
    return same_cluster and (header.revision < begun.revision or header.raft_term < begun.raft_term)
