/* Attributes of the compiler. */
#define __init
#define __section(name)
#define __aligned(bytes) __attribute__((aligned(bytes)))
#define __unused __attribute__((unused))
