import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** Kafka's own reading of sasl.jaas.config: a value in base64 a line in; module, then options by name, in base64 with tabs, or "refused" out. */
public class JaasPeer {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in, "UTF-8").useDelimiter("\n");
        while (lines.hasNext()) {
            String text = new String(Base64.getDecoder().decode(lines.next()), StandardCharsets.UTF_8);
            System.out.println(answer(text));
        }
    }

    private static String answer(String text) {
        try {
            JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)));
            AppConfigurationEntry entry = context.configurationEntries().get(0);
            Map<String, Object> options = new TreeMap<>(entry.getOptions());
            return encoded(entry.getLoginModuleName()) + options.entrySet().stream()
                .map(e -> "\t" + encoded(e.getKey()) + "\t" + encoded(e.getValue().toString())).collect(Collectors.joining());
        } catch (IllegalArgumentException | NullPointerException refused) {
            return "refused";
        }
    }

    private static String encoded(String text) {
        return "." + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
