//! Negative controls: parts that a run leaves out on purpose, to show that they are missed, by a
//! word of the command line (`without=flush`). Only images that are built with the feature
//! `negative` do.

ptarmigan_kernel_base::negative_controls! {
    if cfg!(feature = "negative");
    /// A CPU forgets no translations when it should.
    Flush = "flush",
    /// A CPU that another one asks to forget translations says that it has, and has not.
    Answer = "answer",
    /// A CPU that is asked to forget translations is not interrupted for it.
    Ipi = "ipi",
    /// Data pages are handed out as they are.
    Clear = "clear",
    /// Copies of pages are not made.
    Copy = "copy",
    /// Tasks that sleep for a slot are not woken.
    Wake = "wake",
    /// A CPU to which flushes were left says that it has made up for them, and has not.
    CatchUp = "catch-up",
}
