# Symptom: each small job starts an interpreter, and imports are most of its time.
# Cure: a server that has imported everything and forks for each job.
# Threads: python/cpython#78477, mindroom-ai/mindroom#1433
import os, subprocess, sys

JOBS, MODULES = 12, "json, socket, argparse"
if len(sys.argv) > 1:
    exec("import " + MODULES)
    for _ in range(JOBS):
        if os.fork() == 0:
            os._exit(0)
        os.wait()
else:
    for _ in range(JOBS):
        subprocess.run([sys.executable, "-c", "import " + MODULES], check=True)
