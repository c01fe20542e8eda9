// Symptom: a Mono service that makes large arrays spends its time in the kernel.
// Cause: objects of more than 8,000 bytes are mapped, and unmapped after a collection.
// Cure: arrays that are used again (System.Buffers.ArrayPool).
// Thread: dotnet/runtime#108512
using System.Collections.Generic;

class Arrays {
    static int Main(string[] arguments) {
        var pool = new Queue<byte[]>();
        int sum = 0;
        for (int request = 0; request < 30; request++) {
            var arrays = new List<byte[]>();
            for (int i = 0; i < 100; i++)
                arrays.Add(pool.Count > 0 ? pool.Dequeue() : new byte[200000]);
            foreach (var array in arrays) {
                for (int at = 0; at < array.Length; at += 4096)
                    array[at] = 1;
                sum += array[0];
                if (arguments.Length > 0)
                    pool.Enqueue(array);
            }
        }
        return sum == 3000 ? 0 : 1;
    }
}
