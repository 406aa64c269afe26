import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What the admin client does with topics, configs, groups and records. */
final class Administration {
    private static final TopicPartition FIRST = new TopicPartition(Circle.TOPIC, 0);

    private final Admin admin;

    Administration(Admin admin) {
        this.admin = admin;
    }

    Map<String, Object> topics() throws Exception {
        Map<String, Object> seen = new LinkedHashMap<>();
        NewTopic topic = new NewTopic(Circle.TOPIC, Circle.PARTITIONS, (short) 1).configs(Map.of("retention.ms", "86400000"));
        admin.createTopics(List.of(topic)).all().get();
        seen.put("created again", failure(admin.createTopics(List.of(topic)).all()));
        seen.put("unknown", failure(admin.describeTopics(List.of("absent")).allTopicNames()));
        admin.createPartitions(Map.of(Circle.TOPIC, NewPartitions.increaseTo(Circle.MORE_PARTITIONS))).all().get();
        TopicDescription description = admin.describeTopics(List.of(Circle.TOPIC)).allTopicNames().get().get(Circle.TOPIC);
        seen.put("partitions", description.partitions().size());
        seen.put("leaders", description.partitions().stream().filter(each -> each.leader() != null).count());
        seen.put("listed", new TreeSet<>(admin.listTopics().names().get()));
        seen.put("nodes", admin.describeCluster().nodes().get().size());
        seen.putAll(configs());
        return seen;
    }

    private Map<String, Object> configs() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, Circle.TOPIC);
        ConfigEntry entry = new ConfigEntry("max.message.bytes", "2000000");
        AlterConfigOp set = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        Map<String, Object> dynamic = new TreeMap<>();
        for (ConfigEntry each : config.entries()) {
            if (each.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                dynamic.put(each.name(), each.value());
            }
        }
        return Map.of("configs", dynamic);
    }

    Map<String, Object> groups() throws Exception {
        Map<String, Object> seen = new LinkedHashMap<>();
        Map<String, String> listed = new TreeMap<>();
        for (GroupListing group : admin.listGroups().all().get()) {
            listed.put(group.groupId(), group.type().map(Object::toString).orElse(""));
        }
        seen.put("listed", listed);
        Map<String, ConsumerGroupDescription> described = admin.describeConsumerGroups(listed.keySet()).all().get();
        seen.put("states", described.values().stream().map(each -> each.groupState().toString()).collect(Collectors.toList()));
        Map<TopicPartition, OffsetAndMetadata> offsets =
            admin.listConsumerGroupOffsets("by-classic").partitionsToOffsetAndMetadata().get();
        seen.put("offsets", offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum());
        admin.alterConsumerGroupOffsets("by-classic", Map.of(FIRST, new OffsetAndMetadata(7, "back"))).all().get();
        OffsetAndMetadata moved = admin.listConsumerGroupOffsets("by-classic").partitionsToOffsetAndMetadata().get().get(FIRST);
        seen.put("moved", List.of(moved.offset(), moved.metadata()));
        admin.deleteConsumerGroupOffsets("by-classic", Set.of(FIRST)).all().get();
        seen.put("left", admin.listConsumerGroupOffsets("by-classic").partitionsToOffsetAndMetadata().get().size());
        admin.deleteConsumerGroups(listed.keySet()).all().get();
        seen.put("after", admin.listGroups().all().get().size());
        return seen;
    }

    Map<String, Object> removal() throws Exception {
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("low", admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(5))).lowWatermarks().get(FIRST).get().lowWatermark());
        seen.put("earliest", admin.listOffsets(Map.of(FIRST, OffsetSpec.earliest())).partitionResult(FIRST).get().offset());
        admin.deleteTopics(List.of(Circle.TOPIC)).all().get();
        seen.put("listed", admin.listTopics().names().get());
        return seen;
    }

    /** The error of `future`, by the name of its class. */
    private static String failure(KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return "";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }
}
