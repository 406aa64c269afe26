import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** What user interfaces ask a cluster for when a page is opened. */
final class UserInterface {
    private final Admin admin;

    UserInterface(Admin admin) {
        this.admin = admin;
    }

    /** By call: "ok", or the name of the error's class. */
    Map<String, String> pages() throws Exception {
        int broker = admin.describeCluster().controller().get().id();
        TopicPartition partition = new TopicPartition(Circle.TOPIC, 0);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(broker));
        Map<String, String> seen = new LinkedHashMap<>();
        seen.put("cluster", outcome(admin.describeCluster().clusterId()));
        seen.put("features", outcome(admin.describeFeatures().featureMetadata()));
        seen.put("broker's configs", outcome(admin.describeConfigs(List.of(resource)).all()));
        seen.put("log dirs", outcome(admin.describeLogDirs(List.of(broker)).allDescriptions()));
        seen.put("reassignments", outcome(admin.listPartitionReassignments().reassignments()));
        seen.put("latest offsets", outcome(admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all()));
        seen.put("producers", outcome(admin.describeProducers(List.of(partition)).all()));
        seen.put("transactions", outcome(admin.listTransactions().all()));
        seen.put("acls", outcome(admin.describeAcls(AclBindingFilter.ANY).values()));
        seen.put("quotas", outcome(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()));
        seen.put("users", outcome(admin.describeUserScramCredentials().all()));
        return seen;
    }

    private static String outcome(KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return "ok";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }
}
