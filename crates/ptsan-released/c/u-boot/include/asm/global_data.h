/* The members of the global data that cache_v8.c uses. */
struct global_data {
    struct {
        unsigned long tlb_addr, tlb_size, tlb_fillptr, tlb_emerg;
    } arch;
    unsigned long ram_base, ram_size;
};
extern struct global_data *gd;
#define DECLARE_GLOBAL_DATA_PTR
