/* The parts of KVM that its page tables use, and the instructions, which are functions here. */
#ifndef KVM_HOST_H
#define KVM_HOST_H

#include <linux/types.h>

struct kvm_arch {
    u64 vtcr;
};

struct kvm_s2_mmu {
    struct kvm_arch *arch;
    struct kvm_pgtable *pgt;
    u64 vmid;
};

/* Calls of the hypervisor are calls of functions. */
#define kvm_call_hyp(function, ...) function(__VA_ARGS__)
void __kvm_tlb_flush_vmid_ipa(struct kvm_s2_mmu *mmu, phys_addr_t ipa, int level);
void __kvm_tlb_flush_vmid(struct kvm_s2_mmu *mmu);

enum dsb_kind { ish, ishst, nsh };
#ifndef dsb
#define dsb linux_dsb
#endif
void dsb(enum dsb_kind kind);
void isb(void);
enum tlbi_kind { vae2is, vale2is };
void tlbi(enum tlbi_kind kind, u64 page);
#define __tlbi_level(kind, page, level) ((void)(level), tlbi(kind, page))
#define __TLBI_VADDR(va, asid) (((va) >> 12 & GENMASK(43, 0)) | (u64)(asid) << 48)
#define __tlbi_sync_s1ish_hyp() dsb(ish)

/* Addresses of 48 bits, VMIDs of 16, no forced write-back. */
#define ID_AA64MMFR0_EL1_PARANGE_SHIFT 0
#define ID_AA64MMFR0_EL1_PARANGE_MAX 5
#define id_aa64mmfr0_parange_to_phys_shift(range) 48
#define cpuid_feature_extract_unsigned_field(field, shift) ((field) >> (shift) & 15)
#define get_vmid_bits(mmfr1) ((void)(mmfr1), 16)
#define cpus_have_const_cap(capability) 0
#define cpus_have_final_cap(capability) 0
#define MT_NORMAL 0
#define MT_DEVICE_nGnRE 4
#define PAGE_S2_MEMATTR(attr, write_back) (S2_##attr << 2)
#define S2_NORMAL 15ull
#define S2_DEVICE_nGnRE 1ull

/* VTCR_EL2: T0SZ, SL0, PS, VS. */
#define VTCR_EL2_FLAGS 0
#define VTCR_EL2_PS_SHIFT 16
#define VTCR_EL2_T0SZ(bits) (64ull - (bits))
#define VTCR_EL2_IPA(vtcr) (64 - ((vtcr) & 63))
#define VTCR_EL2_SL0_MASK GENMASK(7, 6)
#define VTCR_EL2_TGRAN_SL0_BASE 2u
#define VTCR_EL2_LVLS_TO_SL0(levels) ((u64)(VTCR_EL2_TGRAN_SL0_BASE - (4 - (levels))) << 6)
#define VTCR_EL2_VS_16BIT (1ull << 19)
#define VTCR_EL2_VS_8BIT 0

#endif
