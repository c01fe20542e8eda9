# For makefiles: `include PREFIX/share/ptsan/ptsan.mk`.
PTSAN_PREFIX := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/../..)
# Of everything that includes a header of ptsan, and of the link.
PTSAN_CFLAGS := -g -I$(PTSAN_PREFIX)/include
PTSAN_LIBS := $(PTSAN_PREFIX)/lib/libptsan_c.a -lpthread -ldl -lm
# For stores that nobody tells: the file that tells of them, and the flags of the code under test.
PTSAN_STORES := $(PTSAN_PREFIX)/share/ptsan/ptsan_stores.c
PTSAN_TOLD := -O1 -fsanitize=thread -fno-builtin -Dmemset=ptsan_stores_memset \
    -Dmemcpy=ptsan_stores_memcpy -Dmemmove=ptsan_stores_memmove
