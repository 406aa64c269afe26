import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Two members of a group: the second one joins, and leaves again, while the first one reads. */
final class GroupMembers {
    private static final Duration TURN = Duration.ofMillis(50);

    private final Properties properties;
    private final String protocol;
    private int read;

    GroupMembers(String bootstrap, String protocol) {
        this.protocol = protocol;
        properties = Records.consuming(bootstrap);
        properties.put("group.id", "by-" + protocol);
        properties.put("enable.auto.commit", "true"); // also before a partition is given away: nothing is read twice
        properties.put("group.protocol", protocol);
        if (protocol.equals("classic")) {
            properties.put("heartbeat.interval.ms", "200");
        }
    }

    Map<String, Object> run() {
        Map<String, Object> seen = new LinkedHashMap<>();
        try (KafkaConsumer<String, String> first = member()) {
            poll(() -> first.assignment().size() == Circle.MORE_PARTITIONS, first);
            seen.put("alone", first.assignment().size());
            try (KafkaConsumer<String, String> second = member()) {
                poll(() -> first.assignment().size() == 3 && second.assignment().size() == 3, first, second);
                seen.put("both", List.of(first.assignment().size(), second.assignment().size()));
                poll(() -> lag(first) + lag(second) == 0, first, second);
            }
            poll(() -> first.assignment().size() == Circle.MORE_PARTITIONS, first);
            seen.put("again", first.assignment().size());
            seen.put("read", read);
            seen.put("committed", committed(first));
        }
        return seen;
    }

    private KafkaConsumer<String, String> member() {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties);
        consumer.subscribe(List.of(Circle.TOPIC));
        return consumer;
    }

    @SafeVarargs
    private void poll(BooleanSupplier until, KafkaConsumer<String, String>... members) {
        long giveUpAt = System.nanoTime() + Circle.WAIT.toNanos();
        while (!until.getAsBoolean()) {
            if (System.nanoTime() > giveUpAt) {
                throw new IllegalStateException("no such assignment by protocol " + protocol);
            }
            for (KafkaConsumer<String, String> member : members) {
                read += member.poll(TURN).count();
            }
        }
    }

    private static long lag(KafkaConsumer<String, String> member) {
        Map<TopicPartition, Long> ends = member.endOffsets(member.assignment());
        return ends.entrySet().stream().mapToLong(end -> end.getValue() - member.position(end.getKey())).sum();
    }

    private static long committed(KafkaConsumer<String, String> member) {
        return member.committed(Set.copyOf(Records.partitions())).values().stream()
            .filter(java.util.Objects::nonNull).mapToLong(OffsetAndMetadata::offset).sum();
    }
}
