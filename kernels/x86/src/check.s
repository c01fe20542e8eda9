# Goes on at `checked`, in the image, if the CPU has what the image needs (bits of what `cpuid`
# says: `features` of leaf 1, `extended` of leaf 0x80000001) and the image's last bytes are memory:
# the loader has cleared them. If not, says so on the first serial port and ends the machine. 32-bit
# protected mode, paging off. Changes eax, ecx, edx, esi, edi. The image's link script sets the
# physical addresses. `complain` prints the text at the physical address in esi and ends.
.section .boot,"ax",@progbits
.globl check, complain
check:
    mov edi, ebx                # which `cpuid` changes
    mov esi, offset old_message_physical
    mov eax, 1
    cpuid
    and edx, {features}
    cmp edx, {features}
    jne 2f
    mov eax, 0x80000000
    cpuid
    cmp eax, 0x80000001
    jb 2f
    mov eax, 0x80000001
    cpuid
    and edx, {extended}
    cmp edx, {extended}
    jne 2f
    mov ebx, edi
    mov edx, offset image_last_physical
    mov dword ptr [edx], 0x5ab1e5ed
    mov eax, [edx]
    mov dword ptr [edx], 0
    cmp eax, 0x5ab1e5ed
    je checked
    mov esi, offset room_message_physical
complain:
2:  mov dx, 0x3fd               # the port's status: a byte can be sent
3:  in al, dx
    test al, 0x20
    jz 3b
    mov al, [esi]
    test al, al
    jz 4f
    mov dx, 0x3f8
    out dx, al
    inc esi
    jmp 2b
4:  mov dx, 0xf4                # the exit device: not all well
    mov al, 0x11
    out dx, al
5:  hlt
    jmp 5b
.globl old_message, room_message
old_message:
    .asciz "FAIL the CPU lacks PAE, NX, SSE, a local APIC, or long mode on x86_64: take a later one, in QEMU -cpu max\n"
room_message:
    .asciz "FAIL memory ends before the image does: give the machine 8 MiB or more\n"
