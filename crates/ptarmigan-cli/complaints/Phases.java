// Symptom: after each collection the heap of a Java service shrinks, and faults come back.
// Cure: -Xms as large as -Xmx.
// Thread: mozilla/mozmill-ci#98
class Phases {
    static byte[][] data;

    public static void main(String[] arguments) throws InterruptedException {
        for (int phase = 0; phase < 6; phase++) {
            data = new byte[150][];
            for (int i = 0; i < data.length; i++) {
                data[i] = new byte[1 << 20];
                data[i][7] = 1;
            }
            data = null;
            System.gc();
            Thread.sleep(60);
        }
    }
}
