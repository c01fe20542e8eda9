//! TLBs that forget no more than they are told to, and write down each call.
use super::call::{Call, Loaded, Method};
use super::hooks::Hooks;
use super::lock;
use super::traits::{Interrupting, MmuTraits};
use ptarmigan::addr::Pfn;
use ptarmigan::cpu::{CpuId, Pinned};
use ptarmigan::format::Formats;
use ptarmigan::tlb::{Invalidation, Mmu, NewEntry, Root, Scope, SpaceId, Structures};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Mutex;

/// The TLBs of a machine's CPUs, for tests.
///
/// 1. Each CPU remembers a translation until a call covers it: an invalidation, or a load that may
///    not keep it. So a flush that is missing, too small, or of another number is seen as an access
///    that reaches the old frame. No hardware reads the tables: the test says at each
///    [`access`](Self::access) what they show.
/// 2. Each [`Call`] is written down ([`calls`](Self::calls), [`take_calls`](Self::take_calls)).
/// 3. Functions of the test run before or after a call ([`before`](Self::before),
///    [`before_next`](Self::before_next)): as an interrupt that comes then, another thread, or code
///    that fails. They may borrow all that lives as long as `'h`.
///
/// `T` describes the MMUs to the library: [`Interrupting`], another of this module, or an
/// [`MmuTraits`] of the test's own. `V` is what a translation consists of, as far as the test
/// compares it: the frame; `(Pfn, Attr)`, so that a permission that was taken away is seen, too; or
/// the raw entry. `TestMmu::new()` has the defaults, `TestMmu::<Broadcasting>::default()` others.
///
/// An address is remembered by itself: a test asks for the first address of a page. Links of tables
/// are not remembered.
///
/// # Examples
///
/// ```
/// use ptarmigan::addr::{VirtAddr, VirtRange};
/// use ptarmigan::cpu::CpuId;
/// use ptarmigan::format::X86_64;
/// use ptarmigan::machine::Machine;
/// use ptarmigan::space::{Access, AreaFlags, Space};
/// use ptarmigan_hosted::test::{Call, TestMmu};
/// use ptarmigan_hosted::{Host, HostConfig, HostMachine};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = Host::<X86_64>::new(HostConfig { cpus: 2, ..HostConfig::default() })?;
/// let mmu = TestMmu::new();
/// let machine = HostMachine::new(&host, host.quicklists()?, &mmu)?;
/// let slots = host.slots();
/// let (pin, other) = (slots[0].pin(), slots[1].pin());
/// let on = machine.on(&pin)?;
///
/// let mut space = Space::<X86_64>::new(on)?;
/// let (first, second) = (0x40_0000, 0x40_1000);
/// space.edit(on)?.mmap(VirtRange::new(first, 0x40_2000)?, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
/// space.activate(machine.on(&other)?)?;
///
/// // A program on CPU 1 uses both pages: its TLB remembers their frames.
/// let mut used = Vec::new();
/// for at in [first, second] {
///     space.fault(on, VirtAddr(at), Access::Write)?;
///     let shown = space.tree().query(on, VirtAddr(at)).map(|(frame, _)| frame);
///     used.push(mmu.access(CpuId(1), at, shown).expect("the page is mapped"));
/// }
/// mmu.take_calls();
///
/// // CPU 0 unmaps the first page. CPU 1 is told to forget it, and nobody else is told anything.
/// space.edit(on)?.munmap(VirtRange::new(first, second)?)?;
/// let [Call::Invalidate(CpuId(1), request)] = mmu.take_calls()[..] else { panic!("one call") };
/// assert!(request.scope.covers(first) && !request.scope.covers(second));
/// assert_eq!(mmu.access(CpuId(1), first, None), None, "the program faults");
///
/// // A page that no flush covered is remembered, whatever the tables show by now.
/// assert_eq!(mmu.access(CpuId(1), second, None), Some(used[1]));
/// # space.end(on)?;
/// # Ok(())
/// # }
/// ```
pub struct TestMmu<'h, T = Interrupting, V = Pfn> {
    /// By number; CPUs beyond the end have not done anything.
    cpus: Mutex<Vec<TestTlb<V>>>,
    calls: Mutex<Vec<Call>>,
    before: Hooks<'h>,
    after: Hooks<'h>,
    traits: PhantomData<fn() -> T>,
}

/// The state of a CPU.
struct TestTlb<V> {
    loaded: Option<Loaded>,
    /// By the number of the space, and address.
    user: HashMap<(u16, u64), V>,
    kernel: HashMap<u64, V>,
}

impl<V> Default for TestTlb<V> {
    fn default() -> Self {
        TestTlb { loaded: None, user: HashMap::new(), kernel: HashMap::new() }
    }
}

/// Returns the translation in the TLB, or else the one that a walk finds, which goes there.
fn find<K: Eq + Hash, V: Clone>(tlb: &mut HashMap<K, V>, key: K, walked: Option<V>) -> Option<V> {
    match (tlb.entry(key), walked) {
        (Entry::Occupied(held), _) => Some(held.get().clone()),
        (Entry::Vacant(place), Some(walked)) => Some(place.insert(walked).clone()),
        (Entry::Vacant(_), None) => None,
    }
}

impl TestMmu<'_> {
    /// Makes TLBs that remember frames, and CPUs that interrupt each other.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<T, V> Default for TestMmu<'_, T, V> {
    fn default() -> Self {
        let (before, after) = (Hooks::default(), Hooks::default());
        TestMmu { cpus: Mutex::default(), calls: Mutex::default(), before, after, traits: PhantomData }
    }
}

impl<'h, T, V: Clone> TestMmu<'h, T, V> {
    /// Accesses `va` as a program on the CPU, in the space that the CPU has loaded, of which the
    /// tables show `shown`. Returns the translation that the access takes: the one that the TLB
    /// remembers under the number of the space, or else `shown`, which it remembers from then on.
    /// `None` if it faults, or if no space is loaded.
    pub fn access(&self, cpu: CpuId, va: u64, shown: Option<V>) -> Option<V> {
        self.with(cpu, |tlb| {
            let number = tlb.loaded?.asid;
            find(&mut tlb.user, (number, va), shown)
        })
    }

    /// Accesses `va` as the kernel in its own half, whatever the CPU has loaded; otherwise as
    /// [`access`](Self::access).
    pub fn access_kernel(&self, cpu: CpuId, va: u64, shown: Option<V>) -> Option<V> {
        self.with(cpu, |tlb| find(&mut tlb.kernel, va, shown))
    }

    /// Returns the translation that the CPU would use at `va` without a walk: in the space that it
    /// has loaded, or of the kernel's half.
    pub fn knows(&self, cpu: CpuId, va: u64) -> Option<V> {
        self.with(cpu, |tlb| {
            let user = tlb.loaded.and_then(|root| tlb.user.get(&(root.asid, va)));
            user.or_else(|| tlb.kernel.get(&va)).cloned()
        })
    }

    /// Returns how many translations the TLBs of all CPUs hold, under whatever numbers.
    pub fn translations(&self) -> usize {
        lock(&self.cpus).iter().map(|tlb| tlb.user.len() + tlb.kernel.len()).sum()
    }

    /// Returns the root that the CPU has loaded, of a space that it runs in or keeps lazily.
    pub fn loaded(&self, cpu: CpuId) -> Option<Loaded> {
        self.with(cpu, |tlb| tlb.loaded)
    }

    /// Returns the calls so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.calls).clone()
    }

    /// Returns the calls since the last time, and empties the log.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut *lock(&self.calls))
    }

    /// Returns the number of calls of the method in the log.
    pub fn count(&self, method: Method) -> usize {
        lock(&self.calls).iter().filter(|call| call.method() == method).count()
    }

    /// Runs `hook` at each call, before it is written down and has its effect. It stands for the
    /// hook that was set before. It may unwind: the call has had no effect then, and is not in the
    /// log.
    pub fn before(&self, hook: impl Fn(&Pinned<'_>, &Call) + Send + Sync + 'h) {
        self.before.set_each(hook);
    }

    /// Runs `hook` at each call, after its effect. It may unwind, too.
    pub fn after(&self, hook: impl Fn(&Pinned<'_>, &Call) + Send + Sync + 'h) {
        self.after.set_each(hook);
    }

    /// Runs `hook` once, before the next call that is one of `which`.
    ///
    /// ```
    /// # use ptarmigan::cpu::CpuId;
    /// # use ptarmigan_hosted::test::{Call, TestMmu};
    /// # let mmu = TestMmu::new();
    /// mmu.before_next(
    ///     |call| matches!(call, Call::Invalidate(CpuId(1), _)),
    ///     |_| panic!("CPU 1 fails"),
    /// );
    /// ```
    pub fn before_next(
        &self,
        which: impl Fn(&Call) -> bool + Send + 'h,
        hook: impl FnOnce(&Pinned<'_>) + Send + 'h,
    ) {
        self.before.set_next(which, hook);
    }

    /// Runs `hook` once, after the next call that is one of `which`.
    pub fn after_next(
        &self,
        which: impl Fn(&Call) -> bool + Send + 'h,
        hook: impl FnOnce(&Pinned<'_>) + Send + 'h,
    ) {
        self.after.set_next(which, hook);
    }

    /// Takes all hooks away.
    pub fn unhook(&self) {
        self.before.clear();
        self.after.clear();
    }

    fn with<R>(&self, cpu: CpuId, f: impl FnOnce(&mut TestTlb<V>) -> R) -> R {
        let (mut cpus, cpu) = (lock(&self.cpus), usize::from(cpu.0));
        if cpus.len() <= cpu {
            cpus.resize_with(cpu + 1, TestTlb::default);
        }
        f(&mut cpus[cpu])
    }

    /// Carries a call out, with the hooks around it. `effect` is on the TLB of the CPU, or on all.
    fn call(&self, pin: &Pinned<'_>, call: Call, on_all: bool, effect: impl Fn(&mut TestTlb<V>)) {
        self.before.run(pin, &call);
        lock(&self.calls).push(call);
        match on_all {
            true => lock(&self.cpus).iter_mut().for_each(effect),
            false => self.with(pin.cpu(), effect),
        }
        self.after.run(pin, &call);
    }
}

// SAFETY: 1. the calling CPU, or each CPU if `T` broadcasts, drops the translations in the scope
// under the number; no links of tables are held. 2. the same of the kernel's half, whose
// translations are under no number. 3. an access uses the translations under the loaded number
// alone, which are dropped if they may not stay, and all if numbers are handed out anew. 4. and 5.
// no CPU walks tables, and translations of any format come from the test; `T` says what its calls
// reach. 6. the log and the state have copies that no MMU can be given. 7. a CPU looks at its
// translations for the test only, under the numbers of roots that it had loaded.
unsafe impl<T: MmuTraits, V: Clone + Send> Mmu for &TestMmu<'_, T, V> {
    const FORMATS: Formats = Formats::ANY;
    const BROADCASTS: bool = T::BROADCASTS;
    const STRUCTURES: Structures = T::STRUCTURES;
    const NEEDS_ENTRY_VALID: bool = T::NEEDS_ENTRY_VALID;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        self.call(pin, Call::Invalidate(pin.cpu(), *what), T::BROADCASTS, |tlb| {
            tlb.user.retain(|(asid, va), _| *asid != what.asid || !what.scope.covers(*va));
        });
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        self.call(pin, Call::InvalidateKernel(pin.cpu(), *scope), T::BROADCASTS, |tlb| {
            tlb.kernel.retain(|va, _| !scope.covers(*va));
        });
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let root = Loaded::from(root);
        self.call(pin, Call::Load(pin.cpu(), root), false, |tlb| {
            let stays = |asid| !root.forget_all && (asid != root.asid || root.keep && asid != 0);
            tlb.user.retain(|(asid, _), _| stays(*asid));
            tlb.loaded = Some(root);
        });
    }

    fn lazy(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.call(pin, Call::Lazy(pin.cpu(), space), false, |_| {});
    }

    fn resume(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.call(pin, Call::Resume(pin.cpu(), space), false, |_| {});
    }

    fn unload(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.call(pin, Call::Unload(pin.cpu(), space), false, |tlb| tlb.loaded = None);
    }

    fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        self.call(pin, Call::EntryBecameValid(pin.cpu(), entry.into()), false, |_| {});
    }
}
