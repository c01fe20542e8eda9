//! The rows of `docs/detects.md`: the name of a test, the defect, and the finding for each format.
macro_rules! matrix_rows {
    ($rows:ident) => {
        $rows! {
    no_flush_on_downgrade: NoFlushOnDowngrade, X86 FlushMissing, Pcid FlushMissing, Arm FlushMissing, RiscV FlushMissing, Sv39 FlushMissing, Ept FlushMissing, Stage2 FlushMissing;
    no_flush_on_unmap: NoFlushOnUnmap, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush, Sv39 DataFreedBeforeFlush, Ept DataFreedBeforeFlush, Stage2 DataFreedBeforeFlush;
    another_page_flushed: WrongPage, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush, Sv39 DataFreedBeforeFlush, Stage2 DataFreedBeforeFlush;
    only_the_own_cpu_flushed: LocalOnly, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush, Sv39 DataFreedBeforeFlush, Ept DataFreedBeforeFlush, Stage2 DataFreedBeforeFlush;
    another_space_flushed: OtherSpace, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush, Sv39 DataFreedBeforeFlush, Ept DataFreedBeforeFlush, Stage2 DataFreedBeforeFlush;
    a_table_freed_before_the_flush: TableBeforeFlush, X86 FreeBeforeFlush, Pcid FreeBeforeFlush, Arm FreeBeforeFlush, RiscV FreeBeforeFlush, Sv39 FreeBeforeFlush, Ept FreeBeforeFlush, Stage2 FreeBeforeFlush;
    a_lazy_cpu_left_out: LazyLeftOut, X86 FlushMissing, Pcid FlushMissing, Arm FlushMissing, RiscV FlushMissing, Sv39 FlushMissing, Ept FlushMissing, Stage2 FlushMissing;
    flushed_then_unlinked_then_freed: FlushedThenUnlinked, X86 FreeBeforeFlush, Pcid FreeBeforeFlush, Arm FreeBeforeFlush, RiscV FreeBeforeFlush, Sv39 FreeBeforeFlush, Ept FreeBeforeFlush, Stage2 FreeBeforeFlush;
    flushed_before_the_entry_was_cleared: FlushedBeforeCleared, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush, Sv39 DataFreedBeforeFlush, Ept DataFreedBeforeFlush, Stage2 DataFreedBeforeFlush;
    the_last_level_flushed_with_a_table_freed: LeafOnly, Arm FreeBeforeFlush, RiscV FreeBeforeFlush, Sv39 FreeBeforeFlush, Stage2 FreeBeforeFlush;
    a_number_reused_without_a_flush: NumberReused, Pcid FlushMissing, Arm FlushMissing, RiscV FlushMissing, Sv39 FlushMissing, Ept FlushMissing, Stage2 FlushMissing;
    a_table_linked_before_it_is_cleared: LinkedBeforeCleared, X86 LinkedBeforeCleared, Pcid LinkedBeforeCleared, Arm LinkedBeforeCleared, RiscV LinkedBeforeCleared, Sv39 LinkedBeforeCleared, Ept LinkedBeforeCleared, Stage2 LinkedBeforeCleared;
    a_global_page_flushed_by_a_root_load: GlobalByRootLoad, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush, Sv39 DataFreedBeforeFlush;
    a_split_without_break_before_make: SplitWithoutBreak, Arm BreakBeforeMake, Stage2 BreakBeforeMake;
    a_collapse_that_flushes_one_page: CollapseOnePage, X86 FlushMissing, Pcid FlushMissing, Arm BreakBeforeMake, RiscV FreeBeforeFlush, Sv39 FreeBeforeFlush, Stage2 BreakBeforeMake;
    a_stride_of_two_pages: WrongStride, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush, Sv39 DataFreedBeforeFlush, Stage2 DataFreedBeforeFlush;
    a_remap_without_a_flush: RemapWithoutFlush, X86 FlushMissing, Pcid FlushMissing, Arm BreakBeforeMake, RiscV FlushMissing, Sv39 FlushMissing, Ept FlushMissing, Stage2 BreakBeforeMake;
    a_copy_on_write_without_a_flush: CopyWithoutFlush, X86 FlushMissing, Pcid FlushMissing, Arm BreakBeforeMake, RiscV FlushMissing, Sv39 FlushMissing, Ept FlushMissing, Stage2 BreakBeforeMake;
    a_table_freed_twice: DoubleFree, X86 DoubleFree, Pcid DoubleFree, Arm DoubleFree, RiscV DoubleFree, Sv39 DoubleFree, Ept DoubleFree, Stage2 DoubleFree;
    a_table_never_freed: Leak, X86 Leak, Pcid Leak, Arm Leak, RiscV Leak, Sv39 Leak, Ept Leak, Stage2 Leak;
    a_root_freed_while_it_is_loaded: RootWhileLoaded, X86 FreeBeforeFlush, Pcid FreeBeforeFlush, Arm FreeBeforeFlush, RiscV FreeBeforeFlush, Sv39 FreeBeforeFlush, Ept FreeBeforeFlush, Stage2 FreeBeforeFlush;
    another_frame_mapped_than_the_code_says: WrongFrame, X86 Disagreement, Pcid Disagreement, Arm Disagreement, RiscV Disagreement, Sv39 Disagreement, Ept Disagreement, Stage2 Disagreement;
    a_data_frame_freed_before_the_flush: DataBeforeFlush, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush, Sv39 DataFreedBeforeFlush, Ept DataFreedBeforeFlush, Stage2 DataFreedBeforeFlush;
    a_data_frame_made_a_table_before_the_flush: DataMadeTable, X86 DataReusedBeforeFlush, Pcid DataReusedBeforeFlush, Arm DataReusedBeforeFlush, RiscV DataReusedBeforeFlush, Sv39 DataReusedBeforeFlush, Ept DataReusedBeforeFlush, Stage2 DataReusedBeforeFlush;
    a_page_table_mapped_to_user_mode: TableMapped, X86 TableMapped, Pcid TableMapped, Arm TableMapped, RiscV TableMapped, Sv39 TableMapped, Ept TableMapped, Stage2 TableMapped;
    a_dirty_bit_lost: DirtyLost, X86 BitLost, Pcid BitLost, Arm BitLost, RiscV BitLost, Sv39 BitLost, Ept BitLost, Stage2 BitLost;
    a_promotion_that_loses_a_dirty_bit: PromotedClean, X86 BitLost, Pcid BitLost, RiscV BitLost, Sv39 BitLost, Ept BitLost;
    a_promotion_that_reads_dirty_bits_too_early: PromotedUnread, Arm BitLost, Stage2 BitLost;
    no_barrier_between_store_and_flush: NoBarrierBefore, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush, Sv39 DataFreedBeforeFlush, Stage2 DataFreedBeforeFlush;
    no_barrier_after_the_flush: NoBarrierAfter, Arm DataFreedBeforeFlush, Stage2 DataFreedBeforeFlush;
    stage_1_forgotten_after_stage_2: Stage1Forgotten, Stage2 DataFreedBeforeFlush;
        }
    };
}
