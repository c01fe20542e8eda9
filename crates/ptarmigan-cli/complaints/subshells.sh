#!/bin/bash
# Symptom: a script that only works on strings spends its time in the kernel.
# Cure: printf -v and assignments in place of $(...) with a builtin, which forks.
# Threads: munin-monitoring/munin#606, ContentsViewer/shtris#32
format() { printf '%05d' "$1"; }
for ((i = 0; i < 400; i++)); do
    if [[ $1 ]]; then printf -v line '%05d' "$i"; else line=$(format "$i"); fi
done
[[ $line == 00399 ]]
