import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.slf4j.impl.StaticLoggerBinder;

/** Java's clients against one broker: everything that a program does with Kafka. It prints what it saw as JSON. */
public final class Circle {
    static final String TOPIC = "events";
    static final int PARTITIONS = 4;
    static final int MORE_PARTITIONS = 6;
    static final Duration WAIT = Duration.ofSeconds(30);

    private Circle() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        long baseMs = Long.parseLong(arguments[1]);
        Map<String, Object> seen = new LinkedHashMap<>();
        try (Admin admin = Admin.create(properties(bootstrap))) {
            Administration administration = new Administration(admin);
            seen.put("topics", administration.topics());
            Records records = new Records(bootstrap, baseMs);
            seen.put("acknowledged", records.produce());
            seen.put("records", records.readAll());
            seen.put("by_time", records.byTime());
            for (String protocol : new String[] {"classic", "consumer"}) {
                seen.put(protocol, new GroupMembers(bootstrap, protocol).run());
            }
            seen.put("user interface", new UserInterface(admin).pages());
            seen.put("transactions", records.transactions());
            seen.put("warnings", java.util.List.copyOf(StaticLoggerBinder.WARNINGS));
            seen.put("groups", administration.groups());
            seen.put("removal", administration.removal());
        }
        System.out.println(new ObjectMapper().writeValueAsString(seen));
    }

    static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }
}
