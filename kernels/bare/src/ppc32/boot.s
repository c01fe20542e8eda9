# From the reset vector, at physical addresses, to the kernel at the addresses it is linked at.

# The reset vector: the image is in memory already.
.section .reset,"ax",@progbits
    lis 3, start_physical@h
    ori 3, 3, start_physical@l
    mtctr 3
    bctr

.section .boot,"ax",@progbits
.globl start
start:
    li 3, 0                     # translation and interrupts off, vectors at 0
    mtmsr 3
    isync
    # All block translations off, then memory at 0xc0000000 for instructions and data, devices at
    # 0xd0000000 for data: 256 MiB each, for the supervisor alone.
    mtspr 528, 3
    mtspr 530, 3
    mtspr 532, 3
    mtspr 534, 3
    mtspr 536, 3
    mtspr 538, 3
    mtspr 540, 3
    mtspr 542, 3
    isync
    lis 4, 0xc000
    ori 4, 4, 0x1ffe            # 256 MiB, valid for the supervisor
    li 5, 0x12                  # memory coherence, read and write
    mtspr 529, 5
    mtspr 528, 4
    mtspr 537, 5
    mtspr 536, 4
    lis 4, 0xd000
    ori 4, 4, 0x1ffe
    lis 5, 0x8000
    ori 5, 5, 0x2a              # not cached, guarded, read and write
    mtspr 539, 5
    mtspr 538, 4
    isync
    lis 4, high@h
    ori 4, 4, high@l
    mtspr 26, 4
    li 4, 0x2030                # translation on, for instructions and data, and floating point
    mtspr 27, 4
    rfi
high:
    lis 1, kernel_stack@ha
    addi 1, 1, kernel_stack@l
    addis 1, 1, 1               # 64 KiB
    addi 1, 1, -16
    li 0, 0
    stw 0, 0(1)
    bl kernel_main
1:  b 1b
