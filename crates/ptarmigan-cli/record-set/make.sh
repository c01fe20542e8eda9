#!/bin/bash
# Load: make -j2 of 120 small files of C.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
for i in {1..120}; do
    printf '#include <stdio.h>\n#include <stdlib.h>\nint f%d(char *t) { return printf("%%d %%s", atoi(t), t); }\n' "$i" >"f$i.c"
done
echo 'int main(void) { return 0; }' >main.c
cat >Makefile <<'END'
parts := $(patsubst %.c,%.o,$(wildcard *.c))
program: $(parts)
	cc -o $@ $^
%.o: %.c
	cc -O1 -c -o $@ $<
END
make -s -j2
