"""Decides whether the key-value store can be trusted: it is the cluster's, and not older than what this broker knows.

A store that was wiped holds no identity. A store that was restored to an older state holds an epoch below one that is
led here, or below one that a log has seen. In either case brokers take nothing from the store until
`tidelog cluster recover` has repaired it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.leadership.cluster_snapshot import ClusterSnapshot, SnapshotDecoder
from tidelog.coordinator.leadership.mirror import Items

FENCED_RETRY_S = 30.0
"""After this time a shard whose log was ahead of the store may be tried again; that try may also bring the store up to
date."""
_RECOVER = "If it is the right etcd, run `tidelog cluster recover`"


class StoreTrust:
    """The evidence against the store of the cluster `cluster_id`."""

    def __init__(self, cluster_id: str, decoder: SnapshotDecoder) -> None:
        self._cluster_id = cluster_id
        self._decoder = decoder
        self._fenced: dict[int, tuple[int, float]] = {}

    def accepts(self, items: Items) -> bool:
        """Whether `items` hold the cluster's identity; if not, they are not the cluster's state."""
        identity = self._decoder.identity(items)
        return identity is not None and identity.cluster_id == self._cluster_id

    def note_fenced(self, shard: int, revision: int, now_s: float) -> None:
        """The log of `shard` has already seen the epoch that the store assigned at `revision`."""
        self._fenced[shard] = (revision, now_s)

    def forget_fenced(self) -> None:
        """The store's revision went back, so the noted revisions mean nothing."""
        self._fenced.clear()

    def trouble(self, snapshot: ClusterSnapshot, led: Mapping[int, int], *, rejected: bool, now_s: float) -> str:
        """What is wrong with the store and what to do, or an empty string. `led`: the epochs of the shards that are led
        here and whose keys the snapshot must show. `rejected`: `accepts` refused the store's newest state."""
        identity = snapshot.identity
        if rejected or identity is None:
            return (
                f"etcd does not hold cluster {self._cluster_id}: it was wiped, or is another one. Brokers keep the "
                f"shards they lead, and take none. {_RECOVER}"
            )
        if identity.cluster_id != self._cluster_id:
            return f"etcd belongs to cluster {identity.cluster_id}, and this broker to {self._cluster_id}"
        for shard in sorted(led):
            stored = snapshot.epochs.get(shard)
            if stored is None or stored.epoch < led[shard]:
                return f"etcd is older than the log of shard {shard}, led here in epoch {led[shard]}. {_RECOVER}"
        return self._fencing(snapshot, now_s)

    def _fencing(self, snapshot: ClusterSnapshot, now_s: float) -> str:
        for shard, (revision, at_s) in tuple(self._fenced.items()):
            stored = snapshot.epochs.get(shard)
            written_since = stored is not None and stored.item.mod_revision > revision
            if not written_since and now_s < at_s + FENCED_RETRY_S:
                return f"etcd is older than the log of shard {shard}, which has seen later epochs. {_RECOVER}"
            del self._fenced[shard]
        return ""
