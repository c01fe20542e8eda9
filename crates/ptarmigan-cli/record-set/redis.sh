#!/bin/bash
# Load: Redis with 150 MiB that saves three times while four clients write. With arguments, a
# command that starts the server, such as taskset.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$@" redis-server --port 0 --unixsocket "$dir/s" --save '' --appendonly no --dir "$dir" >/dev/null &
server=$!
until redis-cli -s "$dir/s" ping &>/dev/null; do sleep 0.05; kill -0 $server || exit 1; done
redis-benchmark -s "$dir/s" -q -t set -n 120000 -r 120000 -d 1024 -P 16 >/dev/null
for _ in 1 2 3; do
    redis-cli -s "$dir/s" bgsave >/dev/null
    redis-benchmark -s "$dir/s" -q -t set -n 20000 -r 120000 -d 1024 -c 4 >/dev/null
    while redis-cli -s "$dir/s" info persistence | grep -q '^rdb_bgsave_in_progress:1'; do sleep 0.1; done
done
redis-cli -s "$dir/s" shutdown nosave
wait $server
