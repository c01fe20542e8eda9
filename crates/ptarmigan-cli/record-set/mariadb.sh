#!/bin/bash
# Load: MariaDB with 64 MiB of buffers, and 16 clients that read, sort and write.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sql=(--no-defaults -uroot -S "$dir/s")
mariadb-install-db --no-defaults --user=root --datadir="$dir/d" --skip-test-db \
    --auth-root-authentication-method=normal >/dev/null 2>&1
mariadbd --no-defaults --user=root --datadir="$dir/d" --socket="$dir/s" --skip-networking \
    --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 2>"$dir/log" &
server=$!
until mariadb-admin "${sql[@]}" ping &>/dev/null; do
    sleep 0.05
    kill -0 $server || { cat "$dir/log"; exit 1; }
done
mariadb "${sql[@]}" -e "create database t; use t; create table data (id int primary key, n int, text varchar(200));
    insert into data select seq, seq mod 997, repeat('x', 100 + seq mod 90) from seq_1_to_50000"
mariadb-slap "${sql[@]}" --create-schema=t --no-drop -c 16 -i 1 --number-of-queries=240 --delimiter=';' \
    --query='select sum(n) from data where id % 7 = 3; select text from data order by n desc limit 50;
        update data set n = n + 1 where id = floor(rand() * 50000)' >/dev/null
status=$?
mariadb-admin "${sql[@]}" shutdown
wait $server && exit $status
