"""The secret of a cluster in the key-value store: made by the first broker that finds none, read by all the others.

    secret = await found_peer_secret(kv, keys, entropy)

It is created only if it is absent, so of brokers that start at the same moment one decides, and the others read what it
wrote. `tidelog cluster recover` calls the same function, so after etcd was wiped the cluster gets a new secret.
Brokers that run keep the old one in memory until they see the new one (`cluster_picture`).
"""

from __future__ import annotations

from tidelog.coordinator.cluster.cluster_keys import FORMAT_VERSION, ClusterKeys, PeerSecret, decode_value, encode_value
from tidelog.coordinator.kv.key_value import KeyValueStore, PutKey, absent
from tidelog.storage.runtime import Entropy


async def found_peer_secret(kv: KeyValueStore, keys: ClusterKeys, entropy: Entropy) -> PeerSecret:
    """The secret of the cluster, made if there is none. Raises `Corrupt`, `Unavailable`."""
    while True:
        item = await kv.get(keys.peer_secret)
        if item is not None:
            return decode_value(keys.peer_secret, item.value, PeerSecret)
        made = PeerSecret(FORMAT_VERSION, entropy.new_id() + entropy.new_id())
        if (await kv.transact([absent(keys.peer_secret)], [PutKey(keys.peer_secret, encode_value(made))])).succeeded:
            return made
