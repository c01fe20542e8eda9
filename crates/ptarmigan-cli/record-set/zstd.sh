#!/bin/bash
# Load: zstd with two threads packs 80 MB and unpacks it.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
seq 1 12000000 | head -c 80000000 >"$dir/data"
zstd -q -T2 -9 -o "$dir/packed" "$dir/data" && zstd -qd -o "$dir/unpacked" "$dir/packed" && cmp "$dir/data" "$dir/unpacked"
