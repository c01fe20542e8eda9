/* PVH entry: 32-bit protected mode, paging off, ebx = physical address of the start information. */
#define PHYS(symbol) ((symbol) - 0xffff800000000000)

    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18                      /* name size, descriptor size, XEN_ELFNOTE_PHYS32_ENTRY */
    .asciz "Xen"
    .quad PHYS(pvh_start)

    .section .boot, "ax", @progbits
    .code32
    .globl pvh_start
pvh_start:
    cli
    cld
    /* The low 4 GiB by 2 MiB pages: the direct map at 0xffff800000000000, where the image is
     * linked, and, until the jump there, where they are. */
    movl $PHYS(boot_upper) + 3, %eax
    movl %eax, PHYS(kernel_root)
    movl %eax, PHYS(kernel_root) + 256 * 8
    movl $PHYS(boot_upper), %edi
    movl $PHYS(boot_directories) + 3, %eax
    movl $4, %ecx
1:  movl %eax, (%edi)
    addl $8, %edi
    addl $4096, %eax
    loop 1b
    movl $PHYS(boot_directories), %edi
    movl $0x83, %eax                    /* present, writable, 2 MiB */
    movl $2048, %ecx
1:  movl %eax, (%edi)
    addl $8, %edi
    addl $0x200000, %eax
    loop 1b
    movl %cr4, %eax
    orl $0x20, %eax                     /* PAE */
    movl %eax, %cr4
    movl $PHYS(kernel_root), %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx              /* EFER */
    rdmsr
    orl $0x900, %eax                    /* LME, NXE */
    wrmsr
    movl %cr0, %eax
    andl $0x9fffffff, %eax              /* CD, NW off */
    orl $0x80010001, %eax               /* PG, WP, PE */
    movl %eax, %cr0
    lgdt PHYS(gdtr32)
    ljmp $8, $PHYS(start64)
    .code64
start64:
    movabsq $high, %rax
    jmp *%rax
high:
    lgdt gdtr64(%rip)
    movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movq $0, kernel_root(%rip)          /* the lower half is the user's from here on */
    movq %cr3, %rax
    movq %rax, %cr3
    movl %ebx, %edi
    leaq boot_stack + 0x8000(%rip), %rsp
    xorl %ebp, %ebp
    call kernel_main
1:  hlt
    jmp 1b

/* One stub for each exception: a zero where the CPU pushes no error code, then the number. */
    .text
    .balign 16
    .globl trap_stubs
trap_stubs:
    .set vector, 0
    .rept 32
    .balign 16
    .if (vector == 8) || (vector == 17) || (vector == 21) || ((vector >= 10) && (vector <= 14))
    .else
    pushq $0
    .endif
    pushq $vector
    jmp common
    .set vector, vector + 1
    .endr

common:
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    cld
    movq 72(%rsp), %rdi                 /* number */
    movq 80(%rsp), %rsi                 /* error code */
    leaq 88(%rsp), %rdx                 /* rip, cs, flags, rsp, ss */
    movq %cr2, %rcx
    pushq %rbp
    movq %rsp, %rbp
    andq $-16, %rsp
    call trap
    movq %rbp, %rsp
    popq %rbp
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rax
    addq $16, %rsp
    iretq

/* int probe(volatile uint64_t *at, uint64_t *value, int writes): 0 if it went well, 1 if it faulted
 * and nobody mapped a page. */
    .globl probe, probe_read, probe_write, probe_failed
probe:
    testl %edx, %edx
    jnz 1f
probe_read:
    movq (%rdi), %rax
    movq %rax, (%rsi)
    xorl %eax, %eax
    ret
1:  movq (%rsi), %rax
probe_write:
    movq %rax, (%rdi)
    xorl %eax, %eax
    ret
probe_failed:
    movl $1, %eax
    ret

    .data
    .balign 16
gdt:
    .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff
gdtr64:
    .word 23
    .quad gdt
gdtr32:
    .word 23
    .long PHYS(gdt)

    .bss
    .balign 4096
    .globl kernel_root
kernel_root:
    .skip 4096
boot_upper:
    .skip 4096
boot_directories:
    .skip 4 * 4096
boot_stack:
    .skip 0x8000

    .section .note.GNU-stack, "", @progbits
