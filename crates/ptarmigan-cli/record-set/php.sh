#!/bin/bash
# Load: PHP with 40 requests, each in a process as by CGI: it sorts rows, and makes a page.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/page.php" <<'END'
<?php
$rows = [];
for ($row = 0; $row < 20000; $row++) {
    $rows[] = ['id' => $row * 7919 % 20011, 'name' => "row $row of {$argv[1]}"];
}
usort($rows, fn ($a, $b) => $a['id'] <=> $b['id']);
foreach ($rows as $row) {
    echo "<li>{$row['id']}: {$row['name']}</li>\n";
}
END
for i in {1..40}; do
    php "$dir/page.php" "$i" >"$dir/page" || exit 1
done
