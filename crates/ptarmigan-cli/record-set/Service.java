// Load: a JVM in which four threads build maps of strings and drop them, with a heap of at most
// 256 MiB.
import java.util.HashMap;
import java.util.Map;

class Service {
    static void serve(int thread) {
        for (int request = 0; request < 30; request++) {
            Map<Integer, String> rows = new HashMap<>();
            for (int row = 0; row < 30000; row++) {
                rows.put(row, "row " + thread + " of " + request + ": " + row);
            }
            if (rows.get(7).isEmpty()) {
                throw new IllegalStateException();
            }
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            int thread = i;
            threads[i] = new Thread(() -> serve(thread));
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }
}
