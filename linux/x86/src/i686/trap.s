# What lies at fs while the kernel runs (struct Local): 0 the kernel's stack, 12 the CPU's number,
# 16 the task state segment.

.section .text
STUBS 256, 0x80

trap_common:
    test byte ptr [esp + 12], 3
    jz from_kernel
    pushad
    .byte 0x1E                  # push ds: the assembler would take words for it
    .byte 0x06                  # push es
    .byte 0x0F, 0xA0            # push fs
    .byte 0x0F, 0xA8            # push gs
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov eax, 0x28
    mov fs, eax
    cld
    # Without SSE, 64-bit atomics of the compiler's go through the floating-point registers.
    fxsave [esp + 80]
    fninit
    mov eax, [esp + 48]         # the vector
    mov esp, fs:[0]
    pop ebp
    pop edi
    pop esi
    pop ebx
    ret

# u32 enter_user(Context *context): runs the program until it traps; returns the vector.
.balign 16
.globl enter_user
enter_user:
    mov eax, [esp + 4]
    push ebx
    push esi
    push edi
    push ebp
    mov fs:[0], esp
    lea ecx, [eax + 76]
    mov edx, fs:[16]
    mov [edx + 4], ecx          # the stack of traps from user mode: the registers themselves
    fxrstor [eax + 80]
    mov esp, eax
    .byte 0x0F, 0xA9            # pop gs: the assembler would take words for it
    .byte 0x0F, 0xA1            # pop fs
    .byte 0x07                  # pop es
    .byte 0x1F                  # pop ds
    popad
    add esp, 8                  # vector and error code
    iretd

# A trap in the kernel: an interrupt while it waits for one, or a defect.
from_kernel:
    pushad
    mov ebp, esp
    cld
    push ebp
    call kernel_trap
    mov esp, ebp
    popad
    add esp, 8
    iretd
