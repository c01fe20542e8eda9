# Goes on at `room`, in the image, if the image's last bytes are memory: the loader has cleared them. If not, there is no
# memory for tables and stacks: says so on the first serial port and ends the machine. 32-bit protected mode, paging off.
# Changes eax, edx, esi. The image's link script sets the physical addresses.
.section .boot,"ax",@progbits
.globl check_room
check_room:
    mov esi, offset image_last_physical
    mov dword ptr [esi], 0x5ab1e5ed
    mov eax, [esi]
    mov dword ptr [esi], 0
    cmp eax, 0x5ab1e5ed
    je room
    mov esi, offset room_message_physical
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
.globl room_message
room_message:
    .asciz "FAIL memory ends before the image does: give the machine 8 MiB or more\n"
