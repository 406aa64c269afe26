"""Detects whether etcd is still the same store with at least the same contents.

Every answer names etcd's cluster. A linearizable answer also has a revision and a raft term at least as high as any
that was known when the call began. An answer from another cluster, or one that went back, means that the data
directory was wiped or restored. The cluster's id alone is not enough: etcd derives it from the members' addresses and
a token, so a store that was wiped and set up in the same way has the same id.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tidelog.coordinator.etcd import rpc_pb2 as pb

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KnownState:
    """The newest state of the store that this process knew at some moment. `set_backs` counts how often it saw the
    store go back."""

    cluster_id: int
    revision: int
    raft_term: int
    set_backs: int

    @property
    def incarnation(self) -> str:
        """Differs if the store is another one or went back."""
        return f"{self.cluster_id:016x}" + (f"-{self.set_backs}" if self.set_backs else "")


class IncarnationTracker:
    """Observes the header of every answer. `known` is None before the first one."""

    def __init__(self) -> None:
        self.known: KnownState | None = None

    def observe(self, header: pb.ResponseHeader, *, begun: KnownState | None, linearizable: bool) -> None:
        """Take in the header of an answer. `begun`: the `known` state when the call began."""
        known = self.known
        if known is None or known.cluster_id != header.cluster_id:
            if known is not None:
                _log.warning("etcd: cluster %x answers instead of cluster %x", header.cluster_id, known.cluster_id)
            set_backs = known.set_backs if known else 0
            self.known = KnownState(header.cluster_id, header.revision, header.raft_term, set_backs)
        elif linearizable and begun is not None and _is_behind(header, begun) and begun.set_backs == known.set_backs:
            _log.warning(
                "etcd: went back from revision %d to %d: it was wiped or restored", known.revision, header.revision
            )
            self.known = KnownState(known.cluster_id, header.revision, header.raft_term, known.set_backs + 1)
        elif linearizable:
            revision, term = max(known.revision, header.revision), max(known.raft_term, header.raft_term)
            self.known = KnownState(known.cluster_id, revision, term, known.set_backs)


def _is_behind(header: pb.ResponseHeader, begun: KnownState) -> bool:
    same_cluster = header.cluster_id == begun.cluster_id
    return same_cluster and (header.revision < begun.revision or header.raft_term < begun.raft_term)
