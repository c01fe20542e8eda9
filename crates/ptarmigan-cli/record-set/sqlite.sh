#!/bin/bash
# Load: SQLite that fills a table of 300,000 rows, indexes it, and joins it with itself, mapped.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sqlite3 "$dir/data" >/dev/null <<'END'
pragma journal_mode = wal;
pragma mmap_size = 268435456;
pragma cache_size = -65536;
create table data (id integer primary key, name text, value integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000)
    insert into data select i, 'name ' || (i * 7919 % 300000), i % 1000 from n;
create index names on data (name);
select count(*) from data a join data b on a.name = 'name ' || b.id where b.value < 300;
update data set value = value + 1 where id % 3 = 0;
select value, count(*), max(name) from data group by value order by 2 desc limit 9;
delete from data where id % 2 = 0;
vacuum;
END
