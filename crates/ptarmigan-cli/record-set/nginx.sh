#!/bin/bash
# Load: nginx with four workers and 300 sites, reloaded ten times while clients ask for a file.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir "$dir/www"
head -c 100000 /dev/zero >"$dir/www/file"
cat >"$dir/conf" <<END
daemon off; user nobody nogroup; pid $dir/pid; worker_processes 4; error_log $dir/log notice;
events { worker_connections 256; }
http {
    access_log off;
    server_names_hash_max_size 4096;
    include $dir/sites;
}
END
for i in {1..300}; do
    echo "server { listen unix:$dir/s; server_name a$i.example; root $dir/www; gzip on; gzip_types *; }"
done >"$dir/sites"
nginx -c "$dir/conf" -e "$dir/log" &
server=$!
until [ -S "$dir/s" ] && curl -sfo /dev/null --unix-socket "$dir/s" http://a1.example/file; do
    sleep 0.05
    kill -0 $server || { cat "$dir/log"; exit 1; }
done
client() {
    for i in {1..40}; do
        curl -s -o /dev/null --compressed --unix-socket "$dir/s" "http://a$i.example/file?[1-20]"
    done
}
client & first=$!
client & second=$!
for _ in {1..10}; do
    kill -HUP $server
    sleep 0.3
done
wait $first $second
kill -QUIT $server
wait $server
