// Symptom: a Java service with a large heap is slow to start other programs, or cannot.
// Cure: -Djdk.lang.Process.launchMechanism=POSIX_SPAWN or VFORK.
// Threads: ReactionMechanismGenerator/RMG-Java#54, occlum/occlum#429
public class Starter {
    public static void main(String[] arguments) throws Exception {
        byte[][] heap = new byte[64][];
        for (int i = 0; i < heap.length; i++)
            heap[i] = new byte[1 << 20];
        for (int i = 0; i < 16; i++)
            new ProcessBuilder("/bin/true").start().waitFor();
        System.exit(heap.length == 64 ? 0 : 1);
    }
}
