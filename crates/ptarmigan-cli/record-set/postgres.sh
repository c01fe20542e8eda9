#!/bin/bash
# Load: PostgreSQL with 128 MiB of shared buffers; $1 clients scan a table and look rows up.
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# PostgreSQL does not run as root.
as=(setpriv --reuid nobody --regid nogroup --clear-groups)
chown nobody "$dir"
cd "$dir" || exit 1
"${as[@]}" "$bin/initdb" -D data -U nobody -A trust -N --no-instructions >/dev/null || exit 1
"${as[@]}" "$bin/postgres" -D data -c listen_addresses= -c unix_socket_directories="$dir" -c shared_buffers=128MB \
    -c max_connections=120 -c huge_pages=off -c fsync=off -c autovacuum=off 2>log &
server=$!
until "$bin/pg_isready" -qh "$dir"; do sleep 0.05; kill -0 $server || { cat log; exit 1; }; done
"$bin/psql" -qh "$dir" -U nobody postgres -c 'create table data as
    select n id, repeat($$x$$, 400) text from generate_series(1, 150000) n' -c 'create index on data (id)' || exit 1
echo 'select count(text) from data where length(text) > 7;' >scan.sql
cat >rows.sql <<'END'
\set id random(1, 150000)
select text from data where id = :id;
END
"$bin/pgbench" -nh "$dir" -U nobody -c "$1" -t 2 -f scan.sql postgres >/dev/null 2>&1 &&
    "$bin/pgbench" -nh "$dir" -U nobody -c "$1" -t 100 -f rows.sql postgres >/dev/null 2>&1
status=$?
kill -INT $server
wait $server && exit $status
