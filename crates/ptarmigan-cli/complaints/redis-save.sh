#!/bin/bash
# Symptom: Redis that saves under writes; its fork takes 50 ms, and memory doubles.
# Cure: as of the threads of snapshot.c: no huge pages; the data has to be inherited.
# Threads: redis/redis#9030, redis/redis#8609
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
redis-server --port 0 --unixsocket "$dir/s" --save '' --appendonly no --dir "$dir" >/dev/null &
server=$!
until redis-cli -s "$dir/s" ping &>/dev/null; do sleep 0.05; done
redis-benchmark -s "$dir/s" -q -t set -d 4000 -n 8000 -r 8000 >/dev/null
redis-cli -s "$dir/s" bgsave >/dev/null
redis-benchmark -s "$dir/s" -q -t set -d 4000 -n 4000 -r 8000 >/dev/null
redis-cli -s "$dir/s" shutdown nosave
wait $server
