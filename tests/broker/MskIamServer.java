import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.Provider;
import java.security.Security;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.Subject;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.spi.LoginModule;
import javax.security.sasl.SaslException;
import javax.security.sasl.SaslServer;
import javax.security.sasl.SaslServerFactory;

/**
 * The broker's side of AWS_MSK_IAM: a payload comes in, and is let in if every field has the published form and the signature is the one
 * that its secret key makes. The key it knows is given by -Dmsk.iam.access and -Dmsk.iam.secret.
 */
public class MskIamServer implements SaslServer {
    private static final String MECHANISM = "AWS_MSK_IAM";
    private static final Set<String> FIELDS = Set.of("version", "host", "user-agent", "action", "x-amz-algorithm",
        "x-amz-credential", "x-amz-date", "x-amz-signedheaders", "x-amz-expires", "x-amz-signature");
    private static final Pattern FIELD = Pattern.compile("\"([^\"\\\\]+)\":\"([^\"\\\\]*)\"(?:,|\\}$)");
    private String user;

    /** Named in the broker's sasl.jaas.config; being loaded is all it has to do. */
    public static class Login implements LoginModule {
        static {
            Security.addProvider(new Registration());
        }

        public void initialize(Subject subject, CallbackHandler handler, Map<String, ?> shared, Map<String, ?> options) { }

        public boolean login() {
            return true;
        }

        public boolean commit() {
            return true;
        }

        public boolean abort() {
            return false;
        }

        public boolean logout() {
            return true;
        }
    }

    private static final class Registration extends Provider {
        Registration() {
            super("MskIamServer", "1", "AWS_MSK_IAM for tests");
            put("SaslServerFactory." + MECHANISM, Factory.class.getName());
        }
    }

    public static class Factory implements SaslServerFactory {
        public SaslServer createSaslServer(String mechanism, String protocol, String server, Map<String, ?> properties,
                CallbackHandler handler) {
            return new MskIamServer();
        }

        public String[] getMechanismNames(Map<String, ?> properties) {
            return new String[] {MECHANISM};
        }
    }

    public byte[] evaluateResponse(byte[] response) throws SaslException {
        try {
            check(fields(new String(response, StandardCharsets.UTF_8)));
        } catch (SaslException refused) {
            System.out.println("AWS_MSK_IAM refused: " + refused.getMessage());
            throw refused;
        } catch (Exception failed) {
            throw new SaslException("the payload cannot be read", failed);
        }
        return ("{\"version\":\"2020_10_22\",\"request-id\":\"" + UUID.randomUUID() + "\"}").getBytes(StandardCharsets.UTF_8);
    }

    private static Map<String, String> fields(String json) throws SaslException {
        require(json.startsWith("{") && json.endsWith("}"), "not a JSON object");
        Map<String, String> found = new TreeMap<>();
        Matcher each = FIELD.matcher(json);
        int at = 1;
        while (at < json.length() && each.find(at) && each.start() == at) {
            require(found.put(each.group(1), each.group(2)) == null, "a field twice");
            at = each.end();
        }
        require(at == json.length(), "not a flat object of strings");
        return found;
    }

    private void check(Map<String, String> given) throws Exception {
        String token = given.get("x-amz-security-token");
        Map<String, String> named = new TreeMap<>(given);
        named.remove("x-amz-security-token");
        require(named.keySet().equals(FIELDS), "fields " + named.keySet());
        require(given.get("version").equals("2020_10_22"), "version");
        require(given.get("action").equals("kafka-cluster:Connect"), "action");
        require(given.get("x-amz-algorithm").equals("AWS4-HMAC-SHA256"), "algorithm");
        require(given.get("x-amz-signedheaders").equals("host"), "signed headers");
        require(given.get("x-amz-expires").equals("900"), "expiry");
        require(given.get("host").equals("127.0.0.1"), "host");
        require(!given.get("user-agent").isEmpty(), "user agent");
        String moment = given.get("x-amz-date");
        Instant made = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC).parse(moment, Instant::from);
        require(Duration.between(made, Instant.now()).abs().compareTo(Duration.ofMinutes(15)) < 0, "date");
        String[] credential = given.get("x-amz-credential").split("/");
        require(credential.length == 5 && credential[1].equals(moment.substring(0, 8))
            && credential[3].equals("kafka-cluster") && credential[4].equals("aws4_request"), "credential scope");
        require(credential[0].equals(System.getProperty("msk.iam.access")), "access key");
        require(given.get("x-amz-signature").equals(signature(given, credential, token)), "signature");
        user = credential[0];
    }

    private static String signature(Map<String, String> given, String[] credential, String token) throws Exception {
        String query = "Action=" + encoded(given.get("action"))
            + "&X-Amz-Algorithm=" + given.get("x-amz-algorithm")
            + "&X-Amz-Credential=" + encoded(given.get("x-amz-credential"))
            + "&X-Amz-Date=" + given.get("x-amz-date")
            + "&X-Amz-Expires=" + given.get("x-amz-expires")
            + (token == null ? "" : "&X-Amz-Security-Token=" + encoded(token))
            + "&X-Amz-SignedHeaders=" + encoded(given.get("x-amz-signedheaders"));
        String request = "GET\n/\n" + query + "\nhost:" + given.get("host") + "\n\nhost\n" + hex(sha256(""));
        String scope = String.join("/", credential[1], credential[2], credential[3], credential[4]);
        String signed = "AWS4-HMAC-SHA256\n" + given.get("x-amz-date") + "\n" + scope + "\n" + hex(sha256(request));
        byte[] key = ("AWS4" + System.getProperty("msk.iam.secret")).getBytes(StandardCharsets.UTF_8);
        for (int part = 1; part < credential.length; part++) key = mac(key, credential[part]);
        return hex(mac(key, signed));
    }

    private static String encoded(String text) {
        StringBuilder made = new StringBuilder();
        for (byte one : text.getBytes(StandardCharsets.UTF_8)) {
            char letter = (char) (one & 0xff);
            if (letter < 128 && (Character.isLetterOrDigit(letter) || "-_.~".indexOf(letter) >= 0)) made.append(letter);
            else made.append(String.format("%%%02X", one & 0xff));
        }
        return made.toString();
    }

    private static byte[] sha256(String text) throws Exception {
        return MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
    }

    private static byte[] mac(byte[] key, String text) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String hex(byte[] bytes) {
        StringBuilder made = new StringBuilder();
        for (byte one : bytes) made.append(String.format("%02x", one & 0xff));
        return made.toString();
    }

    private static void require(boolean holds, String what) throws SaslException {
        if (!holds) throw new SaslException(what);
    }

    public String getMechanismName() {
        return MECHANISM;
    }

    public boolean isComplete() {
        return user != null;
    }

    public String getAuthorizationID() {
        return user;
    }

    public Object getNegotiatedProperty(String name) {
        return null;
    }

    public byte[] unwrap(byte[] incoming, int offset, int length) {
        throw new IllegalStateException("there is no security layer");
    }

    public byte[] wrap(byte[] outgoing, int offset, int length) {
        throw new IllegalStateException("there is no security layer");
    }

    public void dispose() { }
}
