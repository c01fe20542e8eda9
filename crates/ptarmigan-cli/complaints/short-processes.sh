#!/bin/bash
# Symptom: a build script starts hundreds of small programs, each for some milliseconds.
# Cure: fewer programs. A shell has little memory that a fork copies, so no other change helps.
# Threads: toiletbril/kosh#5, att/ast#480
for ((i = 0; i < 60; i++)); do
    /bin/true
done
