#!/bin/bash
# Symptom: nginx with many sites takes seconds of CPU time, and much memory, for its reloads.
# Cure: fewer workers (and reloads): each copies the configuration, as it frees its pool to exit.
# Threads: nginx/kubernetes-ingress#3907, kubernetes/ingress-nginx#6844,
# kubernetes/ingress-nginx#8166
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
workers=8
[ -n "$1" ] && workers=2
cat >"$dir/conf" <<END
daemon off; user nobody nogroup; pid $dir/pid; worker_processes $workers; error_log $dir/log notice;
events { worker_connections 64; }
http {
    access_log off;
    server_names_hash_max_size 8192;
    include $dir/sites;
}
END
for i in {1..1500}; do
    echo "server { listen unix:$dir/s; server_name a$i.example; location / { proxy_pass http://127.0.0.1:9; } }"
done >"$dir/sites"
nginx -c "$dir/conf" -e "$dir/log" &
server=$!
# Waits until $1 reloads have ended: each started its workers, and those before have left.
reloaded() {
    until [ "$(grep -c 'start worker processes' "$dir/log")" -gt "$1" ] && [ "$(pgrep -cP $server)" = $workers ]; do
        sleep 0.05
        kill -0 $server || { cat "$dir/log"; exit 1; }
    done
}
reloaded 0
for i in {1..15}; do
    kill -HUP $server
    reloaded $i
done
kill -QUIT $server
wait $server
