"""Whether the key-value store may be believed: that it is the cluster's, and no older than what this broker knows.

A store that was wiped holds no identity. One that was put back to an older state gives itself away by an epoch below
one that is led here, or below what a log has seen. Either is found, said, and nothing is taken from the store until
`tidelog cluster recover` has mended it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.leadership.cluster_picture import ClusterPicture, PictureReader
from tidelog.coordinator.leadership.mirror import Items

FENCED_RETRY_S = 30.0
"""A log that was ahead of the store is tried again after this, since the store may have caught up by that very try."""
_RECOVER = "If it is the right etcd, run `tidelog cluster recover`"


class StoreTrust:
    """What is held against the store of the cluster `cluster_id`."""

    def __init__(self, cluster_id: str, reader: PictureReader) -> None:
        self._cluster_id = cluster_id
        self._reader = reader
        self._fenced: dict[int, tuple[int, float]] = {}

    def believes(self, items: Items) -> bool:
        """A state without our identity is not taken for what has become of the cluster."""
        identity = self._reader.identity(items)
        return identity is not None and identity.cluster_id == self._cluster_id

    def note_fenced(self, shard: int, revision: int, now_s: float) -> None:
        """The log of `shard` has seen the epoch that the store gave out as a new one at `revision`."""
        self._fenced[shard] = (revision, now_s)

    def forget_fenced(self) -> None:
        """The store is another one."""
        self._fenced.clear()

    def trouble(self, picture: ClusterPicture, led: Mapping[int, int], *, refused: bool, now_s: float) -> str:
        """What is wrong and what to do, empty if nothing is. `led`: epochs of shards whose keys the picture must show;
        `refused`: the store is in a state that was not believed."""
        identity = picture.identity
        if refused or identity is None:
            return (
                f"etcd does not hold cluster {self._cluster_id}: it was wiped, or is another one. Brokers keep the "
                f"shards they lead, and take none. {_RECOVER}"
            )
        if identity.cluster_id != self._cluster_id:
            return f"etcd belongs to cluster {identity.cluster_id}, and this broker to {self._cluster_id}"
        for shard in sorted(led):
            stored = picture.epochs.get(shard)
            if stored is None or stored.epoch < led[shard]:
                return f"etcd is older than the log of shard {shard}, led here in epoch {led[shard]}. {_RECOVER}"
        return self._fencing(picture, now_s)

    def _fencing(self, picture: ClusterPicture, now_s: float) -> str:
        for shard, (revision, at_s) in tuple(self._fenced.items()):
            stored = picture.epochs.get(shard)
            written_since = stored is not None and stored.item.mod_revision > revision
            if not written_since and now_s < at_s + FENCED_RETRY_S:
                return f"etcd is older than the log of shard {shard}, which has seen later epochs. {_RECOVER}"
            del self._fenced[shard]
        return ""
