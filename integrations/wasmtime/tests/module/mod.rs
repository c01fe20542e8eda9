//! A module, and calls of it.
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use wasmtime::{Config, Engine, Error, InstancePre, Linker, Module, Store};

/// `(import "h" "y" (func))`, and a function `f` that calls itself as often as its argument says,
/// then the import, and returns its argument.
const MODULE: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x09\x02\x60\0\0\x60\x01\x7f\x01\x7f\
    \x02\x07\x01\x01h\x01y\0\0\
    \x03\x02\x01\x01\
    \x07\x05\x01\x01f\0\x01\
    \x0a\x19\x01\x17\0\x20\0\x45\x04\x7f\x10\0\x41\0\x05\x20\0\x41\x01\x6b\x10\x01\x41\x01\x6a\x0b\x0b";

/// Waits once.
struct Once(bool);

impl Future for Once {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A module that is ready to be instantiated.
pub fn prepare(config: &mut Config, size: usize, zeroed: bool) -> Result<InstancePre<()>, Error> {
    config.max_wasm_stack(size / 2).async_stack_size(size).async_stack_zeroing(zeroed);
    let engine = Engine::new(config)?;
    let mut linker = Linker::<()>::new(&engine);
    linker.func_wrap_async("h", "y", |_, (): ()| Box::new(Once(false)))?;
    linker.instantiate_pre(&Module::new(&engine, MODULE)?)
}

/// Makes a store and an instance, and calls `f`.
pub async fn request(ready: &InstancePre<()>, depth: i32) -> Result<(), Error> {
    let mut store = Store::new(ready.module().engine(), ());
    let instance = ready.instantiate_async(&mut store).await?;
    let f = instance.get_typed_func::<i32, i32>(&mut store, "f")?;
    assert_eq!(f.call_async(&mut store, depth).await?, depth);
    Ok(())
}
