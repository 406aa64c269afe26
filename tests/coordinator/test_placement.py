from tidelog.coordinator.topics.catalog import place
from tidelog.coordinator.topics.topic import Topic


def test_partitions_of_one_topic_are_spread_evenly() -> None:
    assert sorted(place(10, 4, [])) == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]


def test_a_new_partition_goes_to_the_shard_that_has_fewest() -> None:
    assert place(1, 3, [Topic("a", "1", (0, 1)), Topic("b", "2", (0,))]) == (2,)


def test_topics_of_one_partition_take_the_shards_in_turn() -> None:
    topics: list[Topic] = []
    for number in range(4):
        topics.append(Topic(f"t{number}", str(number), place(1, 4, topics)))
    assert [topic.shards for topic in topics] == [(0,), (1,), (2,), (3,)]


def test_a_shard_added_later_takes_new_partitions_first() -> None:
    assert place(2, 3, [Topic("a", "1", (0, 0, 1, 1))]) == (2, 2)


def test_ten_thousand_partitions_differ_by_one_at_most() -> None:
    placed = place(10_000, 7, [])
    counts = [placed.count(shard) for shard in range(7)]
    assert max(counts) - min(counts) <= 1
