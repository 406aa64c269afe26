import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools in one JVM, because each start of a JVM takes seconds. A line of the input is the main
 * class of a tool and its arguments, with tabs between them. For each line it prints the exit code of the tool and the
 * number of bytes that the tool printed, and then these bytes. A tool that exits only notes its code.
 */
public final class KafkaTools {
    private static Integer exitCode;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> exitCode = exitCode == null ? code : exitCode);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(both);
            System.setErr(both);
            int code = run(line.split("\t"), both);
            both.flush();
            answers.println(code + " " + printed.size());
            printed.writeTo(answers);
            answers.flush();
        }
    }

    private static int run(String[] words, PrintStream printed) throws Exception {
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        exitCode = null;
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace(printed);
            return 1;
        }
        return exitCode == null ? 0 : exitCode;
    }
}
