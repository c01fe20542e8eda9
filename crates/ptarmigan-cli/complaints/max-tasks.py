# Symptom: a pool that replaces its workers after each task runs many times fewer tasks.
# Cure: no maxtasksperchild, or a large one.
# Thread: blacklanternsecurity/bbot#3366
import multiprocessing, os, sys

kept = bytearray(24 << 20)


def task(n):
    return n


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    most = None if len(sys.argv) > 1 else 1
    with multiprocessing.Pool(2, maxtasksperchild=most) as pool:
        for n in range(60):
            pool.apply(task, (n,))
    os._exit(0)
