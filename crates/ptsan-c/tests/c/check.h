/* The shared parts of the tests in C. */
#ifndef CHECK_H
#define CHECK_H

#include "ptsan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what, ptsan_last_error());     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define COUNT(kind, want) CHECK(ptsan_count(san, kind) == (want))

#endif
