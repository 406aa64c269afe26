"""The requests that a commit costs a broker whose log is otherwise idle; the trust in the floor follows the grace."""

from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import numbered

from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.counting import CountingObjectStore, Kind, Usage
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.wal_index import INDEX_EVERY

COMMITS = 100


async def spent_on_commits(store: ObjectStore, **changes: object) -> Usage:
    """The requests to the bucket for `COMMITS` produces, one after the other."""
    counting = CountingObjectStore(store)
    async with running_broker(counting, shards=1, **changes) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions())
        before = counting.usage()
        for n in range(COMMITS):
            await broker.produce(ANYBODY, "t", numbered(n, 1), ProduceOptions())
        return counting.usage() - before


async def test_a_hundred_commits_on_an_idle_log_are_a_hundred_creates_and_at_most_one_read(store: ObjectStore) -> None:
    spent = await spent_on_commits(store)
    assert spent.requests(Verb.CREATE, kind=Kind.WAL) == COMMITS
    assert spent.requests(Verb.GET) <= 1
    assert spent.requests(Verb.PUT) <= 1 + COMMITS // INDEX_EVERY  # the log's index


async def test_without_a_grace_every_commit_reads_the_floor(store: ObjectStore) -> None:
    spent = await spent_on_commits(store, delete_grace_ms=0)
    assert spent.requests(Verb.CREATE, kind=Kind.WAL) == COMMITS
    assert spent.requests(Verb.HEAD, kind=Kind.MANIFEST) == COMMITS
