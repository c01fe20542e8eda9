#!/bin/bash
# Load: rustc, with optimisations, on a crate of 40 types with derived traits.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for i in {1..40}; do
    echo "#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct Row$i { pub id: u64, pub name: String, pub tags: Vec<String> }
        pub fn sorted$i(mut rows: Vec<Row$i>) -> String { rows.sort(); rows.dedup(); format!(\"{rows:?}\") }"
done >"$dir/rows.rs"
rustc --crate-type rlib --edition 2024 -O -C codegen-units=4 -o "$dir/librows.rlib" "$dir/rows.rs"
