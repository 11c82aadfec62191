//! Standard streams, and waiting: on a timer, or on nothing.

use std::io::Read as _;
use std::time::Duration;

use wasmtime::Result;
use wasmtime::component::{ComponentType, Lift, LinkerInstance, Lower, Resource, ResourceType};

use super::{Store, charge, nanoseconds};
use crate::wasm::guest::WasmGuest;

/// The most that is read or offered at once.
const CHUNK_BYTES_MAX: u64 = 64 << 10;
/// Standard output and standard error, as their handles are numbered.
const OUTPUT: u32 = 1;
const ERROR: u32 = 2;

enum InputStream {}
enum OutputStream {}
enum StreamFault {}

/// Something to wait for: a moment of the monotonic clock. One that is over is ready.
struct Pollable {
    ready_ns: u64,
}

#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    Failed(Resource<StreamFault>),
    #[component(name = "closed")]
    Closed,
}

pub(super) fn resource(instance: &mut LinkerInstance<'_, WasmGuest>, name: &str) -> Result<()> {
    match name {
        "input-stream" => instance.resource(name, ResourceType::host::<InputStream>(), |_, _| Ok(())),
        "output-stream" => instance.resource(name, ResourceType::host::<OutputStream>(), |_, _| Ok(())),
        "pollable" => instance.resource(name, ResourceType::host::<Pollable>(), |mut store, handle| {
            store.data_mut().resources.delete(Resource::<Pollable>::new_own(handle))?;
            Ok(())
        }),
        _error => instance.resource(name, ResourceType::host::<StreamFault>(), |_, _| Ok(())),
    }
}

pub(super) fn implement(instance: &mut LinkerInstance<'_, WasmGuest>, interface: &str) -> Result<()> {
    match interface {
        "cli/stdin" => {
            instance.func_wrap("get-stdin", |_: Store<'_>, ()| Ok((Resource::<InputStream>::new_own(0),)))
        }
        "cli/stdout" => instance
            .func_wrap("get-stdout", |_: Store<'_>, ()| Ok((Resource::<OutputStream>::new_own(OUTPUT),))),
        "cli/stderr" => instance
            .func_wrap("get-stderr", |_: Store<'_>, ()| Ok((Resource::<OutputStream>::new_own(ERROR),))),
        "io/streams" => {
            input(instance)?;
            output(instance)
        }
        "io/poll" => polls(instance),
        "clocks/monotonic-clock" => monotonic_clock(instance),
        _not_ours => Ok(()),
    }
}

type Read = std::result::Result<Vec<u8>, StreamError>;
type Wrote<T> = std::result::Result<T, StreamError>;

fn input(streams: &mut LinkerInstance<'_, WasmGuest>) -> Result<()> {
    for name in ["[method]input-stream.read", "[method]input-stream.blocking-read"] {
        streams.func_wrap(name, |mut store: Store<'_>, (_stream, bytes): (Resource<InputStream>, u64)| {
            let bytes = bytes.min(CHUNK_BYTES_MAX);
            charge(&mut store, usize::try_from(bytes).unwrap_or(0))?;
            let mut part = Vec::new();
            store.data_mut().said.input.by_ref().take(bytes).read_to_end(&mut part)?;
            let read: Read = if part.is_empty() && bytes > 0 { Err(StreamError::Closed) } else { Ok(part) };
            Ok((read,))
        })?;
    }
    streams.func_wrap(
        "[method]input-stream.subscribe",
        |store: Store<'_>, (_stream,): (Resource<InputStream>,)| Ok((wait_until(store, 0)?,)),
    )
}

fn output(streams: &mut LinkerInstance<'_, WasmGuest>) -> Result<()> {
    streams.func_wrap(
        "[method]output-stream.check-write",
        |mut store: Store<'_>, (_stream,): (Resource<OutputStream>,)| {
            charge(&mut store, 0)?;
            let room: Wrote<u64> = Ok(CHUNK_BYTES_MAX);
            Ok((room,))
        },
    )?;
    for name in ["[method]output-stream.write", "[method]output-stream.blocking-write-and-flush"] {
        streams.func_wrap(
            name,
            |mut store: Store<'_>, (stream, bytes): (Resource<OutputStream>, Vec<u8>)| {
                charge(&mut store, bytes.len())?;
                let said = &mut store.data_mut().said;
                if stream.rep() == ERROR {
                    said.note(&bytes)
                } else {
                    said.write(&bytes)
                }
                let wrote: Wrote<()> = Ok(());
                Ok((wrote,))
            },
        )?;
    }
    for name in ["[method]output-stream.flush", "[method]output-stream.blocking-flush"] {
        streams.func_wrap(name, |_: Store<'_>, (_stream,): (Resource<OutputStream>,)| {
            let flushed: Wrote<()> = Ok(());
            Ok((flushed,))
        })?;
    }
    streams.func_wrap(
        "[method]output-stream.subscribe",
        |store: Store<'_>, (_stream,): (Resource<OutputStream>,)| Ok((wait_until(store, 0)?,)),
    )
}

fn wait_until(mut store: Store<'_>, ready_ns: u64) -> Result<Resource<Pollable>> {
    charge(&mut store, 0)?;
    Ok(store.data_mut().resources.push(Pollable { ready_ns })?)
}

fn now_ns(store: &Store<'_>) -> u64 {
    nanoseconds(store.data().clock.elapsed())
}

fn monotonic_clock(clock: &mut LinkerInstance<'_, WasmGuest>) -> Result<()> {
    clock.func_wrap("now", |mut store: Store<'_>, ()| {
        charge(&mut store, 0)?;
        Ok((now_ns(&store),))
    })?;
    clock.func_wrap("resolution", |_: Store<'_>, ()| Ok((1_000_u64,)))?;
    clock.func_wrap("subscribe-instant", |store: Store<'_>, (when,): (u64,)| {
        Ok((wait_until(store, when)?,))
    })?;
    clock.func_wrap("subscribe-duration", |store: Store<'_>, (wait,): (u64,)| {
        let when = now_ns(&store).saturating_add(wait);
        Ok((wait_until(store, when)?,))
    })
}

fn polls(poll: &mut LinkerInstance<'_, WasmGuest>) -> Result<()> {
    poll.func_wrap("[method]pollable.ready", |mut store: Store<'_>, (one,): (Resource<Pollable>,)| {
        charge(&mut store, 0)?;
        let ready = store.data().resources.get(&one)?.ready_ns <= now_ns(&store);
        Ok((ready,))
    })?;
    poll.func_wrap_async("[method]pollable.block", |mut store, (one,): (Resource<Pollable>,)| {
        Box::new(async move {
            wait(&mut store, &[one]).await?;
            Ok(())
        })
    })?;
    poll.func_wrap_async("poll", |mut store, (all,): (Vec<Resource<Pollable>>,)| {
        Box::new(async move { Ok((wait(&mut store, &all).await?,)) })
    })
}

/// Waits until one is ready, and says which are. The thread is free meanwhile.
async fn wait(store: &mut Store<'_>, all: &[Resource<Pollable>]) -> Result<Vec<u32>> {
    charge(&mut *store, all.len())?;
    let mut moments = Vec::with_capacity(all.len());
    for one in all {
        moments.push(store.data().resources.get(one)?.ready_ns);
    }
    let Some(first) = moments.iter().copied().min() else {
        return Err(wasmtime::Error::msg("it waits for nothing"));
    };
    let now = now_ns(store);
    if first > now {
        tokio::time::sleep(Duration::from_nanos(first - now)).await;
    }
    // The first is over, even if a manual clock has not moved.
    let now = now_ns(store).max(first);
    let ready = moments.iter().zip(0_u32..).filter(|(moment, _)| **moment <= now);
    Ok(ready.map(|(_, index)| index).collect())
}
