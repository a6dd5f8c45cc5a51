import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Scanner;
import java.util.stream.Collectors;
import org.apache.kafka.connect.runtime.distributed.ConnectProtocol;
import org.apache.kafka.connect.runtime.distributed.ExtendedAssignment;
import org.apache.kafka.connect.runtime.distributed.ExtendedWorkerState;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeConnectProtocol;
import org.apache.kafka.connect.util.ConnectorTaskId;

/** Writes and reads Connect's group protocol with Connect's own classes: a line in, a line out, fields between tabs. */
public class MembershipPeer {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in, "UTF-8").useDelimiter("\n");
        while (lines.hasNext()) {
            String[] fields = lines.next().split("\t", -1);
            String answer = switch (fields[0]) {
                case "write-assignment" -> hex(writeAssignment(Integer.parseInt(fields[1]), assignment(fields, 2)));
                case "write-metadata" -> hex(writeMetadata(fields));
                case "read-assignment" -> text(IncrementalCooperativeConnectProtocol.deserializeAssignment(bytes(fields[1])));
                case "read-metadata" -> text(IncrementalCooperativeConnectProtocol.deserializeMetadata(bytes(fields[1])));
                default -> throw new IllegalArgumentException(fields[0]);
            };
            System.out.println(answer);
        }
    }

    private static ByteBuffer writeAssignment(int version, ExtendedAssignment assignment) {
        return version == 0
            ? ConnectProtocol.serializeAssignment(assignment)
            : IncrementalCooperativeConnectProtocol.serializeAssignment(assignment, version == 2);
    }

    private static ByteBuffer writeMetadata(String[] fields) {
        int version = Integer.parseInt(fields[1]);
        ExtendedAssignment assignment = fields.length > 4 ? assignment(fields, 4) : null;
        ExtendedWorkerState state = new ExtendedWorkerState(fields[2], Long.parseLong(fields[3]), assignment);
        return version == 0
            ? ConnectProtocol.serializeMetadata(state)
            : IncrementalCooperativeConnectProtocol.serializeMetadata(state, version == 2);
    }

    private static ExtendedAssignment assignment(String[] fields, int from) {
        return new ExtendedAssignment((short) 2, Short.parseShort(fields[from]), fields[from + 1], fields[from + 2],
            Long.parseLong(fields[from + 3]), names(fields[from + 4]), tasks(fields[from + 5]), names(fields[from + 6]),
            tasks(fields[from + 7]), Integer.parseInt(fields[from + 8]));
    }

    private static List<String> names(String field) {
        return field.isEmpty() ? new ArrayList<>() : Arrays.asList(field.split(","));
    }

    private static List<ConnectorTaskId> tasks(String field) {
        return names(field).stream().map(task -> {
            int colon = task.lastIndexOf(':');
            return new ConnectorTaskId(task.substring(0, colon), Integer.parseInt(task.substring(colon + 1)));
        }).collect(Collectors.toList());
    }

    private static String text(ExtendedWorkerState state) {
        return state.url() + "\t" + state.offset() + (state.assignment().leader() == null ? "" : "\t" + text(state.assignment()));
    }

    private static String text(ExtendedAssignment assignment) {
        return String.join("\t", String.valueOf(assignment.error()), assignment.leader(), assignment.leaderUrl(),
            String.valueOf(assignment.offset()), String.join(",", assignment.connectors()), text(assignment.tasks()),
            String.join(",", assignment.revokedConnectors()), text(assignment.revokedTasks()),
            String.valueOf(assignment.delay()));
    }

    private static String text(Collection<ConnectorTaskId> tasks) {
        return tasks.stream().map(task -> task.connector() + ":" + task.task()).collect(Collectors.joining(","));
    }

    private static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
