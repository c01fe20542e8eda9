# What lies at gs while the kernel runs (struct Local): 0 the kernel's stack, 8 the end of the
# context's registers, 16 the program's stack pointer for a moment, 24 the CPU's number, 32 the task
# state segment.

.section .text
STUBS 256

trap_common:
    test byte ptr [rsp + 24], 3
    jz from_kernel
    swapgs
save:
    push rdi
    push rsi
    push rdx
    push rcx
    push rax
    push r8
    push r9
    push r10
    push r11
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    cld
    mov rax, [rsp + 120]        # the vector
    mov rsp, gs:[0]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret

# The system call: rcx is where it returns to, r11 the flags.
.balign 16
.globl call_entry
call_entry:
    swapgs
    mov gs:[16], rsp
    mov rsp, gs:[8]
    push 0x23
    push qword ptr gs:[16]
    push r11
    push 0x2b
    push rcx
    push rax                    # the number, where others have an error code
    push 0x100
    jmp save

# u64 enter_user(Context *context): runs the program until it traps; returns the vector.
.balign 16
.globl enter_user
enter_user:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov gs:[0], rsp
    lea rax, [rdi + 176]
    mov gs:[8], rax
    mov rcx, gs:[32]
    mov [rcx + 4], rax          # the stack of traps from user mode: the registers themselves
    mov rsp, rdi
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop r11
    pop r10
    pop r9
    pop r8
    pop rax
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    add rsp, 16                 # vector and error code
    swapgs
.globl enter_user_return
enter_user_return:
    iretq

# A trap in the kernel: an interrupt while it waits for one, or a defect.
from_kernel:
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push rbp
    mov rdi, rsp
    mov rbp, rsp
    and rsp, -16
    cld
    call kernel_trap
    mov rsp, rbp
    pop rbp
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    add rsp, 16
    iretq
