import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Produces with every codec and every acks, reads all of it, and looks up a time. */
final class Records {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final String[] ACKS = {"0", "1", "all"};
    private static final int EACH = 20;
    private static final int IDEMPOTENT = 200;

    private final String bootstrap;
    private final long baseMs;
    private int sent;

    Records(String bootstrap, long baseMs) {
        this.bootstrap = bootstrap;
        this.baseMs = baseMs;
    }

    /** How many records were acknowledged with an offset, by codec and acks. */
    Map<String, Integer> produce() throws Exception {
        Map<String, Integer> acknowledged = new LinkedHashMap<>();
        for (String codec : CODECS) {
            for (String acks : ACKS) {
                Properties properties = producing();
                properties.put("compression.type", codec);
                properties.put("acks", acks);
                properties.put("enable.idempotence", "false");
                acknowledged.put(codec + " " + acks, send(properties, EACH));
            }
        }
        Properties properties = producing();
        properties.put("batch.size", "200");
        acknowledged.put("idempotent", send(properties, IDEMPOTENT));
        return acknowledged;
    }

    private int send(Properties properties, int count) throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        int acknowledged = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            for (int n = 0; n < count; n++) {
                futures.add(producer.send(record(sent++)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : futures) {
                acknowledged += future.get().hasOffset() ? 1 : 0;
            }
        }
        return acknowledged;
    }

    private ProducerRecord<String, String> record(int n) {
        String key = n % 5 == 0 ? null : "k" + n;
        String value = n % 7 == 0 ? null : "v" + n;
        ProducerRecord<String, String> record =
            new ProducerRecord<>(Circle.TOPIC, n % Circle.PARTITIONS, baseMs + n, key, value);
        record.headers().add("n", Integer.toString(n).getBytes(StandardCharsets.UTF_8)).add("empty", null);
        return record;
    }

    /** Every record as [partition, offset, timestamp, key, value, headers]. */
    List<List<Object>> readAll() {
        List<List<Object>> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming(bootstrap))) {
            Collection<TopicPartition> partitions = partitions();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long ends = consumer.endOffsets(partitions).values().stream().mapToLong(Long::longValue).sum();
            long giveUpAt = System.nanoTime() + Circle.WAIT.toNanos();
            while (found.size() < ends && System.nanoTime() < giveUpAt) {
                consumer.poll(Circle.WAIT).forEach(record -> found.add(fields(record)));
            }
        }
        return found;
    }

    private static List<Object> fields(ConsumerRecord<String, String> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(header.key());
            headers.add(header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8));
        }
        List<Object> fields = new ArrayList<>();
        fields.add(record.partition());
        fields.add(record.offset());
        fields.add(record.timestamp());
        fields.add(record.key());
        fields.add(record.value());
        fields.add(headers);
        return fields;
    }

    /** Seeks partition 0 to the record with number 40, and reads one. */
    List<Object> byTime() {
        TopicPartition partition = new TopicPartition(Circle.TOPIC, 0);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming(bootstrap))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, baseMs + 40)).get(partition).offset());
            return fields(consumer.poll(Circle.WAIT).iterator().next());
        }
    }

    /** The error that a program gets that asks for transactions. */
    String transactions() {
        Properties properties = producing();
        properties.put("transactional.id", "billing");
        properties.put("max.block.ms", "10000");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            return "";
        } catch (org.apache.kafka.common.KafkaException error) {
            return error.getClass().getSimpleName();
        }
    }

    static Collection<TopicPartition> partitions() {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int n = 0; n < Circle.MORE_PARTITIONS; n++) {
            partitions.add(new TopicPartition(Circle.TOPIC, n));
        }
        return partitions;
    }

    static Properties consuming(String bootstrap) {
        Properties properties = Circle.properties(bootstrap);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        return properties;
    }

    private Properties producing() {
        Properties properties = Circle.properties(bootstrap);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        return properties;
    }
}
