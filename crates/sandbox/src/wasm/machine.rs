//! One compiler and one pool of memory for all guests, and the limits that hold for every one of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use regent_kernel::{Digest, Limits};
use tokio::sync::{Semaphore, SemaphorePermit};
use wasmtime::{Config, Engine as Vm, InstanceAllocationStrategy, PoolingAllocationConfig, Store};

use super::cache::CodeCache;
use super::compiled::Compiled;
use super::guest::WasmGuest;
use super::pace::{Beating, EpochPace};
use super::{WasmConfig, WasmError};

/// A component made of several modules has a few; a bomb has thousands.
pub(super) const INSTANCES_PER_GUEST_MAX: u32 = 32;
pub(super) const MEMORIES_PER_GUEST_MAX: u32 = 4;
pub(super) const TABLES_PER_GUEST_MAX: u32 = 8;
/// Elements of one table: a function table of a large program has some thousands.
const TABLE_ELEMENTS_MAX: usize = 100_000;
/// All that a 32-bit guest can address: with as much set aside for each memory, no access needs to be checked in code.
const MEMORY_BYTES_RESERVED: u64 = 4 << 30;
const STACK_BYTES_MAX: usize = 512 << 10;
/// The stack of a guest with room for what we do on it.
const FIBER_BYTES_MAX: usize = 1 << 20;
/// The adapter of older modules needs a second one while it asks for memory.
const FIBERS_PER_GUEST_MAX: u32 = 2;
/// Cleared by hand rather than by the system when a place is given back: what small guests touch.
const KEPT_RESIDENT_BYTES: usize = 128 << 10;
/// What a guest may hand over at once, in a call or as its result: as much as a call of the kernel may carry.
pub(super) const CARRIED_BYTES_MAX: usize = 16 << 20;
/// Handles (streams, timers) that a guest may hold at once.
pub(super) const HANDLES_PER_GUEST_MAX: usize = 1_024;
/// What a millisecond of processor time is in fuel. One unit is about one instruction; a slow machine gets less done, not more.
pub(super) const FUEL_PER_MS: u64 = 1_000_000;

/// Everything that guests share.
pub(super) struct WasmMachine {
    vm: Vm,
    places: Semaphore,
    pace: EpochPace,
    cache: Option<CodeCache>,
    /// What is compiled and still in use, so that tools that share an interpreter share its code.
    compiled: Mutex<HashMap<Digest, Weak<Compiled>>>,
}

impl std::fmt::Debug for WasmMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("places", &self.places)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl WasmMachine {
    pub(super) fn new(config: &WasmConfig) -> Result<Self, WasmError> {
        let guests_max = config.guests_max.clamp(1, 1_000);
        let unavailable = |error: wasmtime::Error| WasmError::Unavailable(format!("{error:#}"));
        let vm = Vm::new(&settings(guests_max)).map_err(unavailable)?;
        let pace = EpochPace::start(&vm).map_err(|error| WasmError::Unavailable(error.to_string()))?;
        let cache = config.cache.as_deref().and_then(|folder| CodeCache::open(folder, &vm).ok());
        let places = Semaphore::new(usize::try_from(guests_max).unwrap_or(1));
        Ok(Self { vm, places, pace, cache, compiled: Mutex::default() })
    }

    /// A place for one guest; waits until there is one.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed, and if it were, the pool would say that it is full.
        self.places.acquire().await.ok()
    }

    /// Guests have to be moved along while this is there.
    pub(super) fn beat(&self) -> Beating<'_> {
        self.pace.keep()
    }

    /// Where a guest lives for the time of one call. Everything in it is gone when it is dropped.
    pub(super) fn store(&self, guest: WasmGuest, limits: &Limits) -> wasmtime::Result<Store<WasmGuest>> {
        let mut store = Store::new(&self.vm, guest);
        store.limiter(|guest| &mut guest.held);
        store.set_hostcall_fuel(CARRIED_BYTES_MAX);
        store.set_max_component_handles(HANDLES_PER_GUEST_MAX);
        store.set_fuel(fuel(limits))?;
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        Ok(store)
    }

    /// Code that is ready to run: shared, from the cache, or compiled now. The bytes have this digest.
    pub(super) fn compiled(&self, wasm: &[u8], digest: Digest) -> Result<Arc<Compiled>, WasmError> {
        if let Some(there) = self.shared().get(&digest).and_then(Weak::upgrade) {
            return Ok(there);
        }
        let compiled = Arc::new(Compiled::new(&self.vm, self.cache.as_ref(), wasm, digest)?);
        let mut shared = self.shared();
        shared.retain(|_, one| one.strong_count() > 0);
        shared.insert(digest, Arc::downgrade(&compiled));
        Ok(compiled)
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Weak<Compiled>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call's processor time is in fuel.
pub(super) fn fuel(limits: &Limits) -> u64 {
    limits.cpu_ms_max.saturating_mul(FUEL_PER_MS)
}

fn settings(guests_max: u32) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(guests_max)
        .total_core_instances(guests_max.saturating_mul(INSTANCES_PER_GUEST_MAX))
        .total_memories(guests_max.saturating_mul(MEMORIES_PER_GUEST_MAX))
        .total_tables(guests_max.saturating_mul(TABLES_PER_GUEST_MAX))
        .total_stacks(guests_max.saturating_mul(FIBERS_PER_GUEST_MAX))
        .max_core_instances_per_component(INSTANCES_PER_GUEST_MAX)
        .max_memories_per_component(MEMORIES_PER_GUEST_MAX)
        .max_tables_per_component(TABLES_PER_GUEST_MAX)
        .max_memories_per_module(MEMORIES_PER_GUEST_MAX)
        .max_tables_per_module(TABLES_PER_GUEST_MAX)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_memory_size(usize::try_from(MEMORY_BYTES_RESERVED).unwrap_or(usize::MAX))
        .linear_memory_keep_resident(KEPT_RESIDENT_BYTES)
        .table_keep_resident(KEPT_RESIDENT_BYTES);
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .memory_reservation(MEMORY_BYTES_RESERVED)
        .max_wasm_stack(STACK_BYTES_MAX)
        .async_stack_size(FIBER_BYTES_MAX)
        .consume_fuel(true)
        .epoch_interruption(true)
        // The same input gives the same output on every machine: what a replay rests on.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true);
    config
}
