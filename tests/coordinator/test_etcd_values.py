"""The pure parts of the store on etcd: settings, prefixes, and the meaning of headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.etcd import rpc_pb2 as pb
from tidelog.coordinator.etcd.conversion import end_of, key_bytes, start_of
from tidelog.coordinator.etcd.incarnations import IncarnationTracker, KnownState
from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.storage.errors import Invalid


def test_endpoints_are_hosts_and_ports() -> None:
    settings = EtcdSettings(("http://etcd-0:2379", "http://10.0.0.1:2379/", "http://[::1]:2379"))
    assert settings.targets == ("etcd-0:2379", "10.0.0.1:2379", "[::1]:2379")
    assert not settings.tls
    assert EtcdSettings(("https://etcd:2379",)).tls


@pytest.mark.parametrize(
    "endpoint", ["etcd:2379", "http://etcd", "ftp://etcd:1", "http://etcd:port", "", "http://e:1/x"]
)
def test_an_invalid_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(Invalid):
        EtcdSettings((endpoint,))


def test_settings_that_do_not_fit_together_are_refused() -> None:
    one = ("http://etcd:2379",)
    with pytest.raises(Invalid, match="at least one"):
        EtcdSettings(())
    with pytest.raises(Invalid, match="all http or all https"):
        EtcdSettings((*one, "https://etcd:2380"))
    with pytest.raises(Invalid, match="twice"):
        EtcdSettings((*one, "http://etcd:2379/"))
    with pytest.raises(Invalid, match="password"):
        EtcdSettings(one, username="root")
    with pytest.raises(Invalid, match="https endpoints only"):
        EtcdSettings(one, ca_file="ca.pem")
    with pytest.raises(Invalid, match="its key"):
        EtcdSettings(("https://etcd:2379",), cert_file="client.pem")
    with pytest.raises(Invalid, match="above 0"):
        EtcdSettings(one, timeout_s=0)


@given(st.text(max_size=6), st.text(max_size=8))
def test_a_key_is_between_start_and_end_if_it_has_the_prefix(prefix: str, key: str) -> None:
    if not key:
        return
    end = end_of(prefix)
    inside = key_bytes(key) >= start_of(prefix) and (end == b"\0" or key_bytes(key) < end)
    assert inside == key.startswith(prefix)


def test_a_key_of_foreign_bytes_comes_through() -> None:
    foreign = b"\xff\xfe/\x80"
    assert key_bytes(foreign.decode("utf-8", "surrogateescape")) == foreign
    assert end_of(foreign.decode("utf-8", "surrogateescape")) == b"\xff\xfe/\x81"
    assert end_of(b"\xff\xff".decode("utf-8", "surrogateescape")) == b"\0"


class TestIncarnations:
    """Which headers mean that the store was replaced."""

    @pytest.fixture
    def tracker(self) -> IncarnationTracker:
        tracker = IncarnationTracker()
        tracker.observe(header(revision=10, raft_term=3), begun=None, linearizable=True)
        return tracker

    def test_a_growing_revision_is_the_same_store(self, tracker: IncarnationTracker) -> None:
        before = known(tracker)
        tracker.observe(header(revision=10, raft_term=3), begun=before, linearizable=True)
        tracker.observe(header(revision=12, raft_term=4), begun=before, linearizable=True)
        assert known(tracker) == KnownState(1, 12, 4, 0)
        assert known(tracker).incarnation == before.incarnation

    def test_an_answer_to_an_older_question_may_be_behind(self, tracker: IncarnationTracker) -> None:
        before = known(tracker)
        tracker.observe(header(revision=12, raft_term=3), begun=before, linearizable=True)
        tracker.observe(header(revision=11, raft_term=3), begun=before, linearizable=True)
        assert known(tracker) == KnownState(1, 12, 3, 0)

    def test_a_member_that_lags_may_be_behind(self, tracker: IncarnationTracker) -> None:
        before = known(tracker)
        tracker.observe(header(revision=5, raft_term=2), begun=before, linearizable=False)
        assert known(tracker) == before

    @pytest.mark.parametrize("went_back", [(9, 3), (11, 2)])
    def test_going_back_is_another_store(self, tracker: IncarnationTracker, went_back: tuple[int, int]) -> None:
        before = known(tracker)
        revision, raft_term = went_back
        tracker.observe(header(revision=revision, raft_term=raft_term), begun=before, linearizable=True)
        assert known(tracker).incarnation != before.incarnation
        assert known(tracker).revision == revision

    def test_going_back_is_counted_once(self, tracker: IncarnationTracker) -> None:
        before = known(tracker)
        for _ in range(3):  # calls that began before, and end after
            tracker.observe(header(revision=1, raft_term=1), begun=before, linearizable=True)
        assert known(tracker).set_backs == 1

    def test_another_cluster_is_another_store(self, tracker: IncarnationTracker) -> None:
        before = known(tracker)
        tracker.observe(header(revision=20, raft_term=5, cluster_id=2), begun=before, linearizable=False)
        assert known(tracker).incarnation != before.incarnation


def header(*, revision: int, raft_term: int, cluster_id: int = 1) -> pb.ResponseHeader:
    return pb.ResponseHeader(cluster_id=cluster_id, revision=revision, raft_term=raft_term)


def known(tracker: IncarnationTracker) -> KnownState:
    assert tracker.known is not None
    return tracker.known
