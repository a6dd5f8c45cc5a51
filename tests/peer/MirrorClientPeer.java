import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * Answers what Kafka's own clients make of a cluster. A line has fields with spaces between them, each in base64: a question, its
 * two arguments (empty if it has none), then keys and values of the client's properties. The answer is one line of fields, each `=`
 * and base64: names in their order, a number, or for each partition its group, topic, partition, offset and metadata.
 */
public class MirrorClientPeer {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    public static void main(String[] args) throws Exception {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] fields = lines.nextLine().split(" ", -1);
            for (int i = 0; i < fields.length; i++) {
                fields[i] = new String(Base64.getDecoder().decode(fields[i]), StandardCharsets.UTF_8);
            }
            Map<String, Object> props = new HashMap<>();
            for (int i = 3; i < fields.length; i += 2) {
                props.put(fields[i], fields[i + 1]);
            }
            List<String> coded = new ArrayList<>();
            for (String text : answer(fields[0], fields[1], fields[2], props)) {
                byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
                coded.add("=" + Base64.getEncoder().encodeToString(bytes));
            }
            System.out.println("answer " + String.join(" ", coded));
        }
    }

    private static Collection<String> answer(
            String question, String first, String second, Map<String, Object> props) throws Exception {
        switch (question) {
            case "heartbeat_topics":
                return new TreeSet<>(RemoteClusterUtils.heartbeatTopics(props));
            case "checkpoint_topics":
                return new TreeSet<>(RemoteClusterUtils.checkpointTopics(props));
            case "upstream_clusters":
                return new TreeSet<>(RemoteClusterUtils.upstreamClusters(props));
            case "replication_hops":
                return List.of(Integer.toString(RemoteClusterUtils.replicationHops(props, first)));
            case "translate":
                return offsets(
                    Map.of(first, RemoteClusterUtils.translateOffsets(props, second, first, PATIENCE)));
            case "translate_pattern":
                return offsets(
                    RemoteClusterUtils.translateOffsets(props, second, Pattern.compile(first), PATIENCE));
            default:
                try (MirrorClient client = new MirrorClient(props)) {
                    return new TreeSet<>(
                        first.isEmpty() ? client.remoteTopics() : client.remoteTopics(first));
                }
        }
    }

    private static List<String> offsets(Map<String, Map<TopicPartition, OffsetAndMetadata>> groups) {
        List<String> found = new ArrayList<>();
        new TreeMap<>(groups).forEach((group, partitions) -> {
            TreeMap<String, TopicPartition> order = new TreeMap<>();
            partitions.keySet().forEach(p -> order.put(p.topic() + " " + p.partition(), p));
            for (TopicPartition p : order.values()) {
                OffsetAndMetadata offset = partitions.get(p);
                String place = group + " " + p.topic() + " " + p.partition();
                found.add(place + " " + offset.offset() + " " + offset.metadata());
            }
        });
        return found;
    }
}
