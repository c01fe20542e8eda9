/* See cpu_func.h. */
