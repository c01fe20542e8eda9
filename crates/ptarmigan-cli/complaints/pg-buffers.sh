#!/bin/bash
# Symptom: PageTables of a PostgreSQL host grow with its connections, until memory runs out.
# Cure: huge_pages=on, with huge pages for shared_buffers in the kernel's pool (put back later).
# Threads: citusdata/citus#2445, Tencent/TBase#80
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
dir=$(mktemp -d)
pool=/proc/sys/vm/nr_hugepages
had=$(<$pool)
huge=off
if [ -n "$1" ]; then
    huge=on
    echo $((had + 100)) >$pool
fi
# PostgreSQL does not run as root.
as=(setpriv --reuid nobody --regid nogroup --clear-groups)
trap 'echo $had >$pool; rm -rf "$dir"' EXIT
chown nobody "$dir"
cd "$dir" || exit 1
"${as[@]}" "$bin/initdb" -D data -U nobody -A trust -N --no-instructions >/dev/null || exit 1
"${as[@]}" "$bin/postgres" -D data -c listen_addresses= -c unix_socket_directories="$dir" -c shared_buffers=144MB \
    -c huge_pages=$huge -c fsync=off -c autovacuum=off -c max_parallel_workers_per_gather=0 2>log &
server=$!
until "$bin/pg_isready" -qh "$dir"; do sleep 0.05; kill -0 $server || { cat log; exit 1; }; done
"$bin/psql" -qh "$dir" -U nobody postgres -c 'create table data as select 0 n, repeat($$x$$, 200) t limit 0' \
    -c 'insert into data select n, repeat($$x$$, 200) from generate_series(1, 450000) n' -c 'select sum(n) from data' >/dev/null
echo 'select sum(n) from data;' >scan.sql
"$bin/pgbench" -nh "$dir" -U nobody -c 30 -t 1 -f scan.sql postgres >/dev/null 2>&1
status=$?
kill -INT $server
wait $server && exit $status
