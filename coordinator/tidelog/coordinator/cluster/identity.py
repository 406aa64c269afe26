"""Which cluster owns a bucket, and that nobody else runs on it.

A bucket and a key-value store name each other by the same `ClusterIdentity`: the bucket in its journal under
``cluster``, the store under the cluster's key ``identity``. A broker starts only if both agree:

    bucket       store        a broker of the cluster `name`
    ----------   ----------   ------------------------------------------------------------------------
    new          empty        founds the cluster
    founding     empty        goes on founding, if it is the same store
    founding     the same     finishes founding
    founded      the same     starts
    founded      empty        refuses: the store was wiped, or is another one; `recover` writes it again
    any other    any other    refuses: two clusters, or one broker without etcd, would share the bucket

Founding is three steps, and a start that is cut off between any two is finished by the next one: the journal with
`founded` False, the store, the journal with `founded` True. The journal is an object log, so of brokers that found at
the same moment one decides the identity, and the others find it. While founding, the journal names the store
(``cluster.founding``), so that a second, empty store under the same name is not taken for the first.

A broker without etcd looks at the bucket only, and gives it an identity beside its first topic, in the same entry
(`alone_claim`), so that it costs no request. Buckets from before there were identities get theirs with the next topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from tidelog.coordinator.cluster.cluster_keys import (
    FORMAT_VERSION,
    ClusterIdentity,
    ClusterKeys,
    decode_value,
    encode_value,
)
from tidelog.coordinator.journal import Change, Delete, Journal, Put
from tidelog.coordinator.kv.key_value import KeyValue, KeyValueStore, PutKey, absent, unchanged
from tidelog.storage.errors import Corrupt, Denied
from tidelog.storage.runtime import Runtime

ETCD = "etcd"
EMBEDDED = "embedded"
ALONE = "alone"
"""The name that a broker without etcd gives its bucket."""
_JOURNAL_KEY = "cluster"
_FOUNDING_KEY = "cluster.founding"
_RECOVER = "run `tidelog cluster recover`"


class WrongCluster(Denied):
    """The bucket, the key-value store and the settings do not belong together; an operator has to choose."""


@dataclass(frozen=True, slots=True)
class StoredIdentity:
    """The store's identity, and the key that holds it."""

    identity: ClusterIdentity
    item: KeyValue


async def found_or_check(
    journal: Journal, kv: KeyValueStore, keys: ClusterKeys, *, shards: int, runtime: Runtime
) -> ClusterIdentity:
    """The identity of the cluster `keys.name` on this bucket, founded if there is none. `shards`: how many there should
    be at least; an identity that has fewer grows. Raises `WrongCluster`, `Corrupt`, `Unavailable`."""
    stored = await stored_identity(kv, keys)  # before the bucket's: whoever is named here is named there already
    await journal.catch_up()
    owner = bucket_identity(journal) or await _begin_founding(journal, kv, keys, stored, shards, runtime)
    if owner.founded and stored is None:
        stored = await stored_identity(kv, keys)  # founded by another broker since we looked
    _refuse_mismatch(owner, stored, keys)
    if owner.founded and stored is None:
        raise WrongCluster(
            f"the bucket belongs to {named(owner)}, but etcd knows nothing of it: etcd was wiped, or this is another "
            f"one. If it is the right one, {_RECOVER}"
        )
    await _check_same_founder(journal, owner, kv)
    grown = msgspec.structs.replace(owner, founded=True, shards=max(owner.shards, shards))
    if not owner.founded:
        await write_store_identity(kv, keys, grown)
    grown = await write_bucket_identity(journal, grown)
    await write_store_identity(kv, keys, grown)
    return grown


def check_alone(journal: Journal) -> None:
    """Raises `WrongCluster` if the bucket of the open `journal` belongs to a cluster with etcd."""
    owner = bucket_identity(journal)
    if owner is not None and owner.coordinator != EMBEDDED:
        raise WrongCluster(
            f"the bucket belongs to {named(owner)}, whose brokers meet in etcd: set etcd.endpoints and "
            f"cluster.name={owner.name}, or use another bucket"
        )


def alone_claim(journal: Journal, *, shards: int, runtime: Runtime) -> Callable[[], Sequence[Change]]:
    """What a broker without etcd writes beside its first topic: an identity for the bucket, if it has none; nothing
    later. The call raises `WrongCluster` if a cluster with etcd founded itself on the bucket meanwhile."""
    new = ClusterIdentity(FORMAT_VERSION, runtime.entropy.new_id(), ALONE, EMBEDDED, shards, founded=True)

    def changes() -> Sequence[Change]:
        check_alone(journal)
        return () if bucket_identity(journal) else changes_to(journal, new)

    return changes


def bucket_identity(journal: Journal) -> ClusterIdentity | None:
    """Who owns the bucket, as far as the journal is read. Raises `Corrupt`."""
    raw = journal.get(_JOURNAL_KEY)
    return None if raw is None else _known_version(decode_value("meta/ cluster", bytes(raw), ClusterIdentity))


async def stored_identity(kv: KeyValueStore, keys: ClusterKeys) -> StoredIdentity | None:
    """Whose store this is under the name `keys.name`. Raises `Corrupt`, `Unavailable`."""
    item = await kv.get(keys.identity)
    if item is None:
        return None
    return StoredIdentity(_known_version(decode_value(keys.identity, item.value, ClusterIdentity)), item)


async def write_bucket_identity(journal: Journal, identity: ClusterIdentity) -> ClusterIdentity:
    """Have the journal name `identity`, which owns the bucket already or binds it; a count of shards is never lowered.
    Returns what it names then. Raises `WrongCluster` if another cluster owns it."""

    def decide() -> Sequence[Change]:
        found = bucket_identity(journal)
        if found is not None and found.cluster_id != identity.cluster_id:
            raise WrongCluster(f"the bucket belongs to {named(found)}, not to {named(identity)}")
        shards = max(identity.shards, found.shards if found else 0)
        return changes_to(journal, msgspec.structs.replace(identity, shards=shards))

    await journal.update(decide)
    return bucket_identity(journal) or identity


async def write_store_identity(kv: KeyValueStore, keys: ClusterKeys, identity: ClusterIdentity) -> None:
    """Have the store name `identity`; a count of shards is never lowered. Raises `WrongCluster` if it names another."""
    while True:
        stored = await stored_identity(kv, keys)
        if stored is not None and stored.identity.cluster_id != identity.cluster_id:
            raise WrongCluster(_mismatch(identity, stored.identity))
        shards = max(identity.shards, stored.identity.shards if stored else 0)
        wanted = msgspec.structs.replace(identity, shards=shards)
        if stored is not None and stored.identity == wanted:
            return
        compare = unchanged(stored.item) if stored else absent(keys.identity)
        if (await kv.transact([compare], [PutKey(keys.identity, encode_value(wanted))])).succeeded:
            return


def changes_to(journal: Journal, identity: ClusterIdentity) -> Sequence[Change]:
    """What makes the journal name `identity`: nothing if it does. A founded cluster needs no founder any more."""
    changes: list[Change] = []
    if bucket_identity(journal) != identity:
        changes.append(Put(_JOURNAL_KEY, msgspec.Raw(encode_value(identity))))
    if identity.founded and journal.get(_FOUNDING_KEY) is not None:
        changes.append(Delete(_FOUNDING_KEY))
    return changes


# ---- founding


async def _begin_founding(
    journal: Journal,
    kv: KeyValueStore,
    keys: ClusterKeys,
    stored: StoredIdentity | None,
    shards: int,
    runtime: Runtime,
) -> ClusterIdentity:
    """The first step, or what another broker made of it."""
    new = ClusterIdentity(FORMAT_VERSION, runtime.entropy.new_id(), keys.name, ETCD, shards, founded=False)
    founder = msgspec.Raw(msgspec.json.encode(await kv.incarnation()))

    def decide() -> Sequence[Change]:
        if bucket_identity(journal) is not None:
            return ()
        _refuse_used_bucket(journal, stored, keys)
        return Put(_FOUNDING_KEY, founder), *changes_to(journal, new)

    await journal.update(decide)
    return bucket_identity(journal) or new


async def _check_same_founder(journal: Journal, owner: ClusterIdentity, kv: KeyValueStore) -> None:
    raw = journal.get(_FOUNDING_KEY)
    if not owner.founded and raw is not None and msgspec.json.decode(raw) != await kv.incarnation():
        raise WrongCluster(
            f"{named(owner)} was being founded on this bucket with another etcd: use that one, or {_RECOVER} to "
            "found it with this one"
        )


def _refuse_used_bucket(journal: Journal, stored: StoredIdentity | None, keys: ClusterKeys) -> None:
    """A bucket without an owner has to be new, and so has the store."""
    if stored is not None:
        raise WrongCluster(
            f"etcd belongs to {named(stored.identity)}, which has another bucket: name that bucket with `store`, or "
            "give this cluster another cluster.name"
        )
    if journal.next_number > 0:
        raise WrongCluster(
            f"the bucket was used by a broker without etcd: {_RECOVER} to bind it to this etcd as cluster {keys.name!r}"
        )


def _refuse_mismatch(owner: ClusterIdentity, stored: StoredIdentity | None, keys: ClusterKeys) -> None:
    if stored is not None and stored.identity.cluster_id != owner.cluster_id:
        raise WrongCluster(_mismatch(owner, stored.identity))
    if owner.coordinator == EMBEDDED:
        raise WrongCluster(
            f"the bucket belongs to {named(owner)}, a broker without etcd: stop it, and {_RECOVER} to bind the bucket "
            f"to this etcd as cluster {keys.name!r}"
        )
    if owner.name != keys.name:
        raise WrongCluster(
            f"the bucket belongs to {named(owner)}, and this broker is of cluster {keys.name!r}: set "
            f"cluster.name={owner.name}, or use another bucket"
        )


def _mismatch(owner: ClusterIdentity, stored: ClusterIdentity) -> str:
    return (
        f"the bucket belongs to {named(owner)}, and etcd to {named(stored)}: one of `store`, etcd.endpoints and "
        "cluster.name is another cluster's"
    )


def named(identity: ClusterIdentity) -> str:
    """As messages call a cluster."""
    return f"cluster {identity.name!r} ({identity.cluster_id})"


def _known_version(identity: ClusterIdentity) -> ClusterIdentity:
    if identity.format_version != FORMAT_VERSION:
        raise Corrupt(
            "the cluster's identity",
            f"has format version {identity.format_version}; this Tidelog reads {FORMAT_VERSION}",
        )
    return identity
