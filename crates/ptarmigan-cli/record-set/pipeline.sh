#!/bin/bash
# Load: a shell that reads 100 lists through pipelines of five programs.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for i in {1..100}; do
    seq "$i" 3 3000 | sed 's/7/x/' | sort -r | uniq -c | awk '{ sum += $1 } END { print sum }' >>"$dir/sums"
    name=$(basename "$dir/$i.list" .list)
    [ "$(grep -c . "$dir/sums")" = "$name" ] || exit 1
done
