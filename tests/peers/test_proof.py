"""A broker proves that it is a peer with a secret of the cluster, for one request and a limited time."""

from __future__ import annotations

import pytest
from tests.broker.set_clock import SetClock

from tidelog.services.broker.peer_secrets import FORMER_S, PeerSecrets
from tidelog.services.peers.proof import AGE_MS_MAX, PeerProofs
from tidelog.storage.errors import Invalid, LeaderUnknown

OLD, NEW = "an old secret of 16", "a new secret of 16+"
TARGET = "/v1/topics/web/partitions/0/records?acks=1"


REQUEST = ("GET", TARGET, "alice")


def proof_of(proofs: PeerProofs) -> str:
    return proofs.sign(*REQUEST)


def proofs(secret: str | None, clock: SetClock) -> PeerProofs:
    return PeerProofs(PeerSecrets(secret, clock), clock)


def test_a_proof_holds_for_the_request_that_it_was_made_for_and_for_no_other() -> None:
    mine = proofs(OLD, SetClock())
    proof = mine.sign("POST", TARGET, "alice")
    assert mine.fault(proof, "POST", TARGET, "alice") == ""
    assert "secret" in mine.fault(proof, "GET", TARGET, "alice")
    assert "secret" in mine.fault(proof, "POST", TARGET + "0", "alice")
    assert "secret" in mine.fault(proof, "POST", TARGET, "admin"), "it names another principal"
    assert "secret" in mine.fault(proof[:-1], "POST", TARGET, "alice")
    time, _, digest = proof.partition(" ")
    assert "secret" in mine.fault(f"{int(time) + 1} {digest}", "POST", TARGET, "alice")


@pytest.mark.parametrize("proof", ["", " ", "1", "x y", "-1 00", "\N{SUPERSCRIPT TWO} 00", f"{'9' * 17} 00", "1e3 00"])
def test_a_value_of_another_form_is_no_proof(proof: str) -> None:
    assert proofs(OLD, SetClock()).fault(proof, "GET", TARGET, "alice")


@pytest.mark.parametrize("direction", [1, -1])
def test_a_proof_holds_within_the_bound_on_its_age(direction: int) -> None:
    clock = SetClock()
    mine = proofs(OLD, clock)
    proof = mine.sign("GET", TARGET, "alice")
    clock.wall_ahead_ms = direction * (AGE_MS_MAX - 5_000)
    assert mine.fault(proof, "GET", TARGET, "alice") == ""
    clock.wall_ahead_ms = direction * (AGE_MS_MAX + 5_000)
    assert "clock" in mine.fault(proof, "GET", TARGET, "alice")


def test_a_secret_of_another_cluster_proves_nothing() -> None:
    clock = SetClock()
    assert "secret" in proofs(OLD, clock).fault(proofs(NEW, clock).sign("GET", TARGET, "alice"), "GET", TARGET, "alice")


def test_a_broker_without_a_secret_believes_nobody_and_proves_nothing() -> None:
    clock = SetClock()
    alone = proofs(None, clock)
    assert alone.fault(proofs(OLD, clock).sign("GET", TARGET, "alice"), "GET", TARGET, "alice")
    with pytest.raises(LeaderUnknown):
        alone.sign("GET", TARGET, "alice")


def test_given_secrets_can_be_changed_one_broker_at_a_time() -> None:
    clock = SetClock()
    before, during, after = proofs(OLD, clock), proofs(f"{NEW}, {OLD}", clock), proofs(NEW, clock)
    assert during.fault(before.sign("GET", TARGET, "alice"), "GET", TARGET, "alice") == ""
    assert after.fault(during.sign("GET", TARGET, "alice"), "GET", TARGET, "alice") == ""


def test_a_stored_secret_that_is_replaced_is_believed_for_a_while() -> None:
    clock, stored = SetClock(), [OLD]
    secrets = PeerSecrets(None, clock)
    secrets.follow(OLD, lambda: stored[0])
    here, late = PeerProofs(secrets, clock), proofs(OLD, clock)
    assert here.fault(late.sign("GET", TARGET, "alice"), "GET", TARGET, "alice") == ""
    stored[0] = NEW
    assert here.fault(proof_of(late), *REQUEST) == "", "the other has not heard of it yet"
    assert proofs(NEW, clock).fault(proof_of(here), *REQUEST) == "", "it signs with the new one"
    clock.pass_time(FORMER_S + 1)
    assert "secret" in here.fault(proof_of(late), *REQUEST)


def test_a_given_secret_comes_before_the_stored_one_and_is_never_printed() -> None:
    secrets = PeerSecrets(NEW, SetClock())
    secrets.follow(OLD, lambda: OLD)
    assert secrets.signing() == NEW.encode()
    assert NEW not in repr(secrets) + str(vars(type(secrets)))


@pytest.mark.parametrize("given", ["short", f"{NEW},short", ","])
def test_a_short_secret_is_refused(given: str) -> None:
    with pytest.raises(Invalid) as refusal:
        PeerSecrets(given, SetClock())
    assert refusal.value.field == "peer.secret"
    assert given not in str(refusal.value) or given == ","
