<?php
// Load: PHP with 200 requests, each of which reads rows, sorts them and makes a page.
$length = 0;
for ($request = 0; $request < 200; $request++) {
    $rows = [];
    for ($row = 0; $row < 10000; $row++) {
        $rows[] = ['id' => $row * 7919 % 10007, 'name' => "row $row of $request"];
    }
    usort($rows, fn ($a, $b) => $a['id'] <=> $b['id']);
    $page = '';
    foreach ($rows as $row) {
        $page .= "<li>{$row['id']}: {$row['name']}</li>\n";
    }
    $length += strlen($page);
    unset($rows, $page);
}
exit($length > 0 ? 0 : 1);
