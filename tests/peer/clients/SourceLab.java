import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.sourcelab.kafka.connect.apiclient.Configuration;
import org.sourcelab.kafka.connect.apiclient.KafkaConnectClient;
import org.sourcelab.kafka.connect.apiclient.request.dto.ConnectorPluginConfigDefinition;
import org.sourcelab.kafka.connect.apiclient.request.dto.NewConnectorDefinition;
import org.sourcelab.kafka.connect.apiclient.request.post.PostConnectorRestart;

/** The story through SourceLab's client. Arguments: the worker's address, the name of a connector, its config as JSON. */
public final class SourceLab {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String PLUGIN = "MirrorHeartbeatConnector";
    private static final long PATIENCE_MS = 60_000;
    private final List<Object> seen = new ArrayList<>();
    private final String status;

    private SourceLab(String url, String name) {
        status = url + "/connectors/" + name + "/status";
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] args) throws Exception {
        Map<String, String> config = JSON.readValue(args[2], Map.class);
        SourceLab story = new SourceLab(args[0], args[1]);
        story.tell(new KafkaConnectClient(new Configuration(args[0])), args[1], config);
        System.out.write(JSON.writeValueAsString(story.seen).getBytes(StandardCharsets.UTF_8));
        System.out.flush();
        System.exit(0);
    }

    private static Map<String, String> with(Map<String, String> config, String key, String value) {
        Map<String, String> changed = new LinkedHashMap<>(config);
        changed.put(key, value);
        return changed;
    }

    private void tell(KafkaConnectClient client, String name, Map<String, String> config) throws Exception {
        Map<String, String> wrong = with(config, "tasks.max", "none");
        Map<String, String> update = with(config, "emit.heartbeats.interval.seconds", "2");
        NewConnectorDefinition whole = new NewConnectorDefinition(name, config);
        step("root", client::getConnectServerVersion, null);
        step("list", client::getConnectors, null);
        step("plugins", client::getConnectorPlugins, null);
        step("validate", () -> client.validateConnectorPluginConfig(new ConnectorPluginConfigDefinition(PLUGIN, config)), null);
        step("validate wrong", () -> client.validateConnectorPluginConfig(new ConnectorPluginConfigDefinition(PLUGIN, wrong)), null);
        step("absent", () -> client.getConnector("absent"), null);
        step("absent status", () -> client.getConnectorStatus("absent"), null);
        step("create wrong", () -> client.addConnector(new NewConnectorDefinition(name, wrong)), null);
        step("create", () -> client.addConnector(whole), "RUNNING");
        step("expand", client::getConnectorsWithAllExpandedMetadata, null);
        step("get", () -> client.getConnector(name), null);
        step("config", () -> client.getConnectorConfig(name), null);
        step("status", () -> client.getConnectorStatus(name), null);
        step("tasks", () -> client.getConnectorTasks(name), null);
        step("task status", () -> client.getConnectorTaskStatus(name, 0), null);
        step("restart task", () -> client.restartConnectorTask(name, 0), "RUNNING");
        step("create again", () -> client.addConnector(whole), null);
        step("pause", () -> client.pauseConnector(name), "PAUSED");
        step("resume", () -> client.resumeConnector(name), "RUNNING");
        step("restart", () -> client.restartConnector(name), "RUNNING");
        step("restart all", () -> client.restartConnector(new PostConnectorRestart(name).withIncludeTasks(true)), "RUNNING");
        step("update", () -> client.updateConnectorConfig(name, update), "RUNNING");
        step("config", () -> client.getConnectorConfig(name), null);
        step("stop", () -> client.stopConnector(name), "STOPPED");
        step("status", () -> client.getConnectorStatus(name), null);
        step("reset topics", () -> client.resetConnectorTopics(name), null);
        step("topics", () -> client.getConnectorTopics(name), null);
        step("delete", () -> client.deleteConnector(name), "gone");
        step("get", () -> client.getConnector(name), null);
    }

    /** What a step gives, or the error it ends with; then the state that the connector must reach before the next. */
    private void step(String name, Callable<?> action, String state) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        Object found = outcome(action);
        while (found == null && System.currentTimeMillis() < deadline) {
            Thread.sleep(100);
            found = outcome(action);
        }
        seen.add(List.of(name, found == null ? "the worker stayed busy" : found));
        if (state != null) {
            reach(state);
        }
    }

    /** Null if the worker is busy with a rebalance, or about to say something else (topics are asked for after they were forgotten). */
    private static Object outcome(Callable<?> action) throws Exception {
        try {
            String found = JSON.writeValueAsString(action.call());
            boolean isStale = found.contains("UNASSIGNED") || found.contains("[\"heartbeats\"]");
            return isStale ? null : JSON.readTree(found);
        } catch (RuntimeException error) {
            boolean isBusy = String.valueOf(error.getMessage()).contains("rebalance");
            return isBusy ? null : error.getClass().getSimpleName() + ": " + error.getMessage();
        }
    }

    private void reach(String state) throws Exception {
        int wanted = state.equals("STOPPED") ? 1 : 2;
        HttpClient http = HttpClient.newHttpClient();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < deadline) {
            var answer = http.send(HttpRequest.newBuilder(URI.create(status)).build(), BodyHandlers.ofString());
            if (answer.statusCode() == 404 && state.equals("gone")) {
                return;
            }
            if (answer.statusCode() == 200) {
                List<String> states = JSON.readTree(answer.body()).findValuesAsText("state");
                if (states.size() == wanted && states.stream().allMatch(state::equals)) {
                    return;
                }
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException(status + " is not " + state);
    }
}
