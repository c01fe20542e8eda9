<?php
// Symptom: requests that build long strings spend their time in the kernel.
// Cure: work in pieces. Strings of 2 MiB and more are mapped, and unmapped when they go.
// Thread: php/php-src#13599
$sum = 0;
$part = str_repeat('x', 65536);
for ($request = 0; $request < 120; $request++) {
    if (isset($argv[1])) {
        foreach (range(1, 48) as $i) {
            $sum += strlen($part) + ord($part[$request]);
        }
    } else {
        $text = str_repeat($part, 48);
        $sum += strlen($text) + ord($text[$request]);
        unset($text);
    }
}
exit($sum > 0 ? 0 : 1);
