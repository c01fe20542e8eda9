.section .text
STUBS 32

# Every vector runs on a stack of its own (IST): the host's prebuilt core uses the red zone below
# rsp.
trap_common:
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push rbx
    push rbp
    cld
    mov rbx, rsp
    sub rsp, 512
    and rsp, -16
    fxsave [rsp]                # the host's prebuilt core uses SSE
    mov rdi, rbx
    mov rbp, rsp
    call trap_entry
    fxrstor [rbp]
    mov rsp, rbx
    pop rbp
    pop rbx
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    add rsp, 16                 # vector and error code
    iretq

# u64 probe_read(u64 address, u64 *value): 0 when read, 1 when it faulted and nobody handled the
# fault.
.globl probe_read, probe_read_at, probe_write, probe_write_at, probe_failed
probe_read:
probe_read_at:
    mov rax, [rdi]
    mov [rsi], rax
    xor eax, eax
    ret

# u64 probe_write(u64 address, u64 value): 0 when written, 1 when it faulted and nobody handled the
# fault.
probe_write:
probe_write_at:
    mov [rdi], rsi
    xor eax, eax
    ret

probe_failed:
    mov eax, 1
    ret
