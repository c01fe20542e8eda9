#!/bin/bash
# Symptom: MariaDB with a large tmp_table_size is slow with threads: each statement maps and
# unmaps hundreds of MiB.
# Cure: a smaller limit of temporary tables in memory. Their first block is a part of the limit.
# Thread: MariaDB/server#5408
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sql=(--no-defaults -uroot -S "$dir/s")
limit=4G
[ -n "$1" ] && limit=16M
mariadb-install-db --no-defaults --user=root --datadir="$dir/d" --skip-test-db \
    --auth-root-authentication-method=normal >/dev/null 2>&1
mariadbd --no-defaults --user=root --datadir="$dir/d" --socket="$dir/s" --skip-networking \
    --innodb-buffer-pool-size=32M --tmp-memory-table-size=$limit --max-heap-table-size=$limit 2>"$dir/log" &
server=$!
until mariadb-admin "${sql[@]}" ping &>/dev/null; do
    sleep 0.05
    kill -0 $server || { cat "$dir/log"; exit 1; }
done
mariadb "${sql[@]}" -e "create database t; use t; create table data (n int, text varchar(200));
    insert into data select seq, repeat('x', 100 + seq mod 90) from seq_1_to_2000"
mariadb-slap "${sql[@]}" --create-schema=t --no-drop -c 4 -i 1 --number-of-queries=400 \
    --query='select count(*) from (select distinct text, n from data) parts' >/dev/null
status=$?
mariadb-admin "${sql[@]}" shutdown
wait $server && exit $status
