"""The key space compared with a simple model: a dict, and a copy of it for every revision."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.coordinator.embedded_kv.key_draft import (
    KEY_CHARACTERS_MAX,
    OPERATIONS_MAX,
    VALUE_BYTES_MAX,
    EndLease,
    KeyDraft,
    Request,
    Transaction,
)
from tests.coordinator.embedded_kv.key_space import KeySpace

from tidelog.coordinator.kv.key_value import Compacted, DeleteKey, EventKind, GetKey, Operation, PutKey, absent
from tidelog.storage.errors import Invalid, TooLarge

KEYS = ("a", "a/", "a/b", "a/c", "b")
HISTORY_EVENTS = 5


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=3))
    operations: list[Operation] = [
        PutKey(key, draw(st.binary(max_size=2)), draw(st.sampled_from((0, 0, 1, 2))))
        if draw(st.booleans())
        else DeleteKey(key)
        for key in keys
    ]
    return Transaction(draw(st.sampled_from(((), (absent("a"),)))), tuple(operations))


groups = st.lists(st.lists(transactions() | st.builds(EndLease, st.sampled_from((1, 2))), max_size=3), max_size=12)


class Model:
    """Values and leases by key, at each revision."""

    def __init__(self) -> None:
        self.now: dict[str, tuple[bytes, int]] = {}
        self.revision = 1
        self.then: dict[int, dict[str, tuple[bytes, int]]] = {1: {}}

    def do(self, request: Request) -> None:
        before, changed = dict(self.now), False
        if isinstance(request, EndLease):
            gone = [key for key, (_, lease_id) in self.now.items() if lease_id == request.lease_id]
            changed = bool(gone)
            self.now = {key: value for key, value in self.now.items() if key not in gone}
        elif all(compare.key not in before for compare in request.compares):
            for operation in request.then:
                changed = self._act(operation) or changed
        if changed:
            self.revision += 1
            self.then[self.revision] = dict(self.now)

    def _act(self, operation: Operation) -> bool:
        if isinstance(operation, PutKey):
            self.now[operation.key] = (operation.value, operation.lease_id)
            return True
        return self.now.pop(operation.key, None) is not None


def run(requests: Sequence[Sequence[Request]], history_events_max: int = 1_000) -> tuple[KeySpace, Model]:
    """Send the same requests to both, in groups of one draft each."""
    space, model = KeySpace(history_events_max=history_events_max), Model()
    for group in requests:
        draft = KeyDraft(space, lambda lease_id: True)
        for request in group:
            draft.ended_leases.clear()  # a lease ends and its number is granted again: there are only two
            draft.run(request)
            model.do(request)
        space.apply(draft.changes)
    return space, model


def values(space: KeySpace, prefix: str, revision: int | None = None) -> Mapping[str, tuple[bytes, int]]:
    return {item.key: (item.value, item.lease_id) for item in space.range(prefix, revision=revision).items}


@given(groups, st.sampled_from(("", "a", "a/", "c")))
def test_every_revision_is_read_as_it_was(requests: list[list[Request]], prefix: str) -> None:
    space, model = run(requests)
    assert space.revision == model.revision
    for revision, then in model.then.items():
        assert values(space, prefix, revision) == {key: value for key, value in then.items() if key.startswith(prefix)}


@given(groups, st.integers(1, 3))
def test_pages_make_up_the_whole(requests: list[list[Request]], limit: int) -> None:
    space, _ = run(requests)
    page = space.range("", limit=limit)
    seen = list(page.items)
    while page.more:
        page = space.range("", limit=limit, after=seen[-1].key, revision=page.revision)
        seen += page.items
    assert seen == list(space.range("").items)


@given(groups)
def test_events_lead_from_any_revision_kept_to_now(requests: list[list[Request]]) -> None:
    space, model = run(requests, HISTORY_EVENTS)
    for revision in range(space.oldest_revision, space.revision + 1):
        state = dict(model.then[revision - 1])
        for event in space.events("", revision).events:
            if event.kind is EventKind.PUT:
                state[event.item.key] = (event.item.value, event.item.lease_id)
            else:
                del state[event.item.key]
        assert state == model.now


@given(groups)
def test_discarded_revisions_are_refused_by_watches_and_ranges(requests: list[list[Request]]) -> None:
    space, _ = run(requests, HISTORY_EVENTS)
    if space.oldest_revision > 2:
        with pytest.raises(Compacted):
            space.events("", space.oldest_revision - 1)
        with pytest.raises(Compacted):
            space.range("", revision=space.oldest_revision - 2)
    space.range("", revision=space.oldest_revision - 1)


@given(groups)
def test_a_lease_holds_the_keys_that_name_it(requests: list[list[Request]]) -> None:
    space, model = run(requests)
    for lease_id in (1, 2):
        held = {item.key for item in space.leased_items() if item.lease_id == lease_id}
        assert held == {key for key, (_, held_by) in model.now.items() if held_by == lease_id}


def test_a_revision_still_to_come_is_refused() -> None:
    with pytest.raises(Invalid, match="still to come"):
        KeySpace().range("", revision=2)


def test_a_page_has_a_key_at_least() -> None:
    with pytest.raises(Invalid):
        KeySpace().range("", limit=0)


@pytest.mark.parametrize(("key", "fits"), [("", False), ("k", True), ("k" * KEY_CHARACTERS_MAX, True)])
def test_a_key_has_its_bounds(key: str, fits: bool) -> None:
    _check(PutKey(key, b""), fits=fits)
    _check(PutKey("k" * (KEY_CHARACTERS_MAX + 1), b""), fits=False)


def test_a_value_has_its_bound() -> None:
    _check(PutKey("k", bytes(VALUE_BYTES_MAX)), fits=True)
    with pytest.raises(TooLarge):
        Transaction((), (PutKey("k", bytes(VALUE_BYTES_MAX + 1)),))


def test_a_transaction_has_its_bound() -> None:
    Transaction((), (GetKey("k"),) * OPERATIONS_MAX)
    with pytest.raises(Invalid):
        Transaction((), (GetKey("k"),) * (OPERATIONS_MAX + 1))


def _check(put: PutKey, *, fits: bool) -> None:
    if fits:
        Transaction((), (put,))
    else:
        with pytest.raises(Invalid):
            Transaction((), (put,))
