import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.RegexRouter;
import org.apache.kafka.connect.transforms.TimestampRouter;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Answers what Kafka's own transforms make of a line: fields with spaces between them, each in base64. `header` and a literal give
 * the header's value; `regex` or `time`, two settings, a topic and a time give the record's new topic. The answer is in base64 too,
 * or `null`, or `refused`.
 */
public class TransformsPeer {
    public static void main(String[] args) throws Exception {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] fields = lines.nextLine().split(" ", -1);
            for (int i = 0; i < fields.length; i++) {
                fields[i] = new String(Base64.getDecoder().decode(fields[i]), StandardCharsets.UTF_8);
            }
            System.out.println(answer(fields));
        }
    }

    private static String answer(String[] fields) {
        try {
            byte[] found = fields[0].equals("header") ? header(fields[1]) : topic(fields);
            return found == null ? "null" : Base64.getEncoder().encodeToString(found);
        } catch (RuntimeException error) {
            return "refused";
        }
    }

    private static byte[] header(String literal) {
        SchemaAndValue value = Values.parseString(literal);
        if (value == null) {
            return null;
        }
        return new SimpleHeaderConverter().fromConnectHeader("t", "h", value.schema(), value.value());
    }

    private static byte[] topic(String[] fields) {
        Map<String, String> settings = new HashMap<>();
        boolean isRegex = fields[0].equals("regex");
        settings.put(isRegex ? "regex" : "topic.format", fields[1]);
        settings.put(isRegex ? "replacement" : "timestamp.format", fields[2]);
        Transformation<SourceRecord> router = isRegex ? new RegexRouter<>() : new TimestampRouter<>();
        router.configure(settings);
        long time = Long.parseLong(fields[4]);
        SourceRecord record =
            new SourceRecord(null, null, fields[3], 0, null, null, null, null, time);
        return router.apply(record).topic().getBytes(StandardCharsets.UTF_8);
    }
}
