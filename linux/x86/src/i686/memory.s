# Memory functions and names of an unwinder, which the target expects from libc and libstd. No code
# unwinds: the profile says abort.
.section .text
.globl memcpy, memmove, memset, memcmp, bcmp, strlen, rust_eh_personality, _Unwind_Resume
memcpy:
    push edi
    push esi
    mov edi, [esp + 12]
    mov esi, [esp + 16]
    mov ecx, [esp + 20]
    mov eax, edi
    mov edx, ecx
    shr ecx, 2
    rep movsd
    mov ecx, edx
    and ecx, 3
    rep movsb
    pop esi
    pop edi
    ret
memmove:
    mov eax, [esp + 4]
    cmp eax, [esp + 8]
    jbe memcpy
    push edi
    push esi
    mov edi, eax
    mov esi, [esp + 16]
    mov ecx, [esp + 20]
    lea edi, [edi + ecx - 1]
    lea esi, [esi + ecx - 1]
    std
    rep movsb
    cld
    pop esi
    pop edi
    ret
memset:
    push edi
    mov edi, [esp + 8]
    movzx eax, byte ptr [esp + 12]
    imul eax, eax, 0x01010101
    mov ecx, [esp + 16]
    mov edx, ecx
    shr ecx, 2
    rep stosd
    mov ecx, edx
    and ecx, 3
    rep stosb
    mov eax, [esp + 8]
    pop edi
    ret
memcmp:
bcmp:
    push edi
    push esi
    mov edi, [esp + 12]
    mov esi, [esp + 16]
    mov ecx, [esp + 20]
    xor eax, eax
2:  test ecx, ecx
    jz 3f
    movzx eax, byte ptr [edi]
    movzx edx, byte ptr [esi]
    inc edi
    inc esi
    dec ecx
    sub eax, edx
    jz 2b
3:  pop esi
    pop edi
    ret
strlen:
    mov ecx, [esp + 4]
    xor eax, eax
2:  cmp byte ptr [ecx + eax], 0
    je 3f
    inc eax
    jmp 2b
3:  ret
rust_eh_personality:
_Unwind_Resume:
    ud2
