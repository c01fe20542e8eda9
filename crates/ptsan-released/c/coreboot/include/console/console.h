/* See types.h. */
#include <types.h>
