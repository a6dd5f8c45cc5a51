import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeAssignor;
import org.apache.kafka.connect.runtime.distributed.WorkerCoordinator.ConnectorsAndTasks;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.util.ConnectorTaskId;

/** Connect's own assignor: rounds in, a line each; what every member is to add and to give back out, fields between tabs. */
public class AssignorPeer {
    private static long now;

    public static void main(String[] args) throws Exception {
        Time time = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (self, method, given) -> {
                if (method.getName().equals("milliseconds")) return now;
                throw new UnsupportedOperationException(method.getName());
            });
        Method assign = Arrays.stream(IncrementalCooperativeAssignor.class.getDeclaredMethods())
            .filter(m -> m.getName().equals("performTaskAssignment") && m.getParameterCount() == 4).findFirst().get();
        assign.setAccessible(true);
        Field delay = IncrementalCooperativeAssignor.class.getDeclaredField("delay");
        delay.setAccessible(true);
        IncrementalCooperativeAssignor assignor = null;
        Scanner lines = new Scanner(System.in, "UTF-8").useDelimiter("\n");
        while (lines.hasNext()) {
            String[] fields = lines.next().split("\t", -1);
            if (fields[0].equals("new")) {
                assignor = new IncrementalCooperativeAssignor(new LogContext(), time, Integer.parseInt(fields[1]));
                continue;
            }
            now = Long.parseLong(fields[1]);
            Map<String, ConnectorsAndTasks> members = new TreeMap<>();
            for (String field : Arrays.asList(fields).subList(5, fields.length)) {
                String[] parts = field.split("[=/]", -1);
                members.put(parts[0], new ConnectorsAndTasks.Builder().with(names(parts[1]), tasks(parts[2])).build());
            }
            List<String> workers = new ArrayList<>(members.keySet());
            Object plan = assign.invoke(assignor, config(fields[4]), Integer.parseInt(fields[2]), Integer.parseInt(fields[3]), members);
            StringBuilder answer = new StringBuilder().append(delay.get(assignor));
            for (String worker : workers) {
                answer.append("\t").append(worker).append("=").append(given(plan, "newlyAssigned", worker))
                    .append("/").append(given(plan, "newlyRevoked", worker));
            }
            System.out.println(answer);
        }
    }

    private static ClusterConfigState config(String field) throws Exception {
        Map<String, Integer> counts = new HashMap<>();
        Map<String, Map<String, String>> configs = new HashMap<>();
        for (ConnectorTaskId connector : tasks(field)) {
            counts.put(connector.connector(), connector.task());
            configs.put(connector.connector(), Map.of());
        }
        Constructor<?> made = Arrays.stream(ClusterConfigState.class.getConstructors())
            .filter(c -> c.getParameterCount() == 11).findFirst().get();
        return (ClusterConfigState) made.newInstance(1L, null, counts, configs, Map.of(), Map.of(), Map.of(), Map.of(), Map.of(), Set.of(), Set.of());
    }

    private static String given(Object plan, String what, String worker) throws Exception {
        List<String> all = new ArrayList<>();
        for (String kind : new String[] {"Connectors", "Tasks"}) {
            Method method = plan.getClass().getMethod(what + kind, String.class);
            method.setAccessible(true);
            for (Object item : (Collection<?>) method.invoke(plan, worker)) {
                all.add(item instanceof ConnectorTaskId id ? id.connector() + ":" + id.task() : item.toString());
            }
        }
        return all.stream().sorted().collect(Collectors.joining(","));
    }

    private static List<String> names(String field) {
        return field.isEmpty() ? List.of() : Arrays.asList(field.split(","));
    }

    private static List<ConnectorTaskId> tasks(String field) {
        return names(field).stream().map(task -> {
            int colon = task.lastIndexOf(':');
            return new ConnectorTaskId(task.substring(0, colon), Integer.parseInt(task.substring(colon + 1)));
        }).collect(Collectors.toList());
    }
}
