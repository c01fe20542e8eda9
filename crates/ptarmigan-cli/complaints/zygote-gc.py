# Symptom: workers that were forked from a process with everything loaded grow to its size.
# Cure: gc.freeze() before the fork, so that collections do not write to inherited objects.
# Threads: benoitc/gunicorn#1640, livekit/agents#7117, frappe/frappe#18927
import gc, os, sys

loaded = [{"key": i, "value": [i]} for i in range(120_000)]
gc.collect()
if len(sys.argv) > 1:
    gc.freeze()
for _ in range(4):
    if os.fork() == 0:
        gc.collect()
        os._exit(0)
for _ in range(4):
    os.wait()
os._exit(0)
