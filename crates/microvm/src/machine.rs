//! The virtual machine: one processor in long mode at ring 3, and nothing else. No devices, no interrupts, no guest kernel.
//!
//! What a kernel would be are a few pages: descriptor tables, and two kinds of stubs of one `out` instruction each. `LSTAR` leads to
//! the *gate*, so that each `syscall` of the guest becomes an exit that we answer; each exception leads to a stub of its own, so that
//! we hear of it. The gate lies where ring 3 may run it, because a hypervisor that emulates ring 0 enters it at ring 3; real hardware
//! enters it at ring 0. Both are one `out`, and an `out` from anywhere else is a fault of the guest.
#![expect(unsafe_code, reason = "the hypervisor's interface: memory slots, the signal mask")]

use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, Msrs, kvm_msr_entry, kvm_segment, kvm_sregs};
use kvm_bindings::{kvm_regs, kvm_userspace_memory_region, kvm_xcrs};
use kvm_ioctls::{Kvm, SyncReg, VcpuExit, VcpuFd, VmFd};

use super::memory::{GuestRam, PAGE_BYTES};
use super::space::{Machinery, OutOfMemory, ROOT, Space};

/// The gate: above everything that the guest can map, below the half that belongs to kernels.
const GATE: u64 = 0x7fff_ffff_0000;
/// Descriptor tables, exception stubs and the stack that exceptions use.
const TABLES: u64 = 0xffff_8000_0000_0000;
const INTERRUPTS: u64 = TABLES + PAGE_BYTES;
const STUBS: u64 = TABLES + 2 * PAGE_BYTES;
const STACK: u64 = TABLES + 3 * PAGE_BYTES;
const STACK_TOP: u64 = STACK + PAGE_BYTES;
/// The task segment follows the descriptors on their page.
const TASK: u64 = TABLES + 0x100;
const TASK_LIMIT: u32 = 0x67;

/// `out` to here is a system call; from [`FAULT_PORT`] up, an exception.
const CALL_PORT: u8 = 0x40;
const FAULT_PORT: u8 = 0x80;
const VECTORS: u8 = 32;
const STUB_BYTES: u64 = 16;

/// Selectors. The order is what `syscall` and `sysret` demand.
const KERNEL_CODE: u16 = 0x08;
const USER_BASE: u16 = 0x18;
const USER_STACK: u16 = 0x23;
const USER_CODE: u16 = 0x2b;
const TASK_SELECTOR: u16 = 0x30;
const DESCRIPTORS: [u64; 6] =
    [0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0, 0x00cf_f300_0000_ffff, 0x00af_fb00_0000_ffff];

/// Paging, protection, numeric errors, write protection also for ring 0.
const CR0: u64 = 0x8005_0033;
/// Physical address extension, SSE and its exceptions, `wrfsbase` and its kind, extended state.
const CR4: u64 = 1 << 5 | 1 << 9 | 1 << 10 | 1 << 16 | 1 << 18;
/// `syscall`, long mode, no-execute.
const EFER: u64 = 1 | 1 << 8 | 1 << 10 | 1 << 11;
const MSR_STAR: u32 = 0xc000_0081;
const MSR_LSTAR: u32 = 0xc000_0082;
const MSR_SFMASK: u32 = 0xc000_0084;
/// Flags that `syscall` clears: trap, interrupt, direction, nested task, alignment.
const CALL_MASK: u64 = 0x4_7700;
/// x87, SSE, AVX and AVX-512 state, as far as the processor has them.
const XCR0_WANTED: u64 = 0xe7;
/// What the guest may set in its flags: arithmetic, direction, alignment, identification.
const USER_FLAGS: u64 = 0x24_0cd5;
/// Always one, and interrupts on, of which there are none.
const FIXED_FLAGS: u64 = 0x202;

/// The guest's view of why it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VcpuStop {
    /// A system call.
    Call {
        /// Which.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// An exception.
    Fault(GuestFault),
    /// A signal interrupted the processor.
    Interrupted,
    /// Something that can't be gone on from.
    Dead(&'static str),
}

/// An exception of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GuestFault {
    /// The processor's number for it.
    pub(super) vector: u8,
    /// What the processor says about it.
    pub(super) error: u64,
    /// The address, of page faults.
    pub(super) address: u64,
    /// Where the guest was.
    pub(super) at: u64,
    stack: u64,
    flags: u64,
}

/// The vectors that have a meaning of their own here.
pub(super) const PAGE_FAULT: u8 = 14;

/// A machine that is made and has not run yet, or runs.
#[derive(Debug)]
pub(super) struct Vm {
    vcpu: VcpuFd,
    _vm: VmFd,
    sregs: kvm_sregs,
    bytes: u64,
    /// Where the exceptions' stack is in physical memory.
    stack: u64,
    /// The thread's base register, to be set with the next run.
    thread_base: Option<u64>,
}

impl Vm {
    /// A machine with this memory, of which it becomes the second user: it must be dropped before the memory is.
    pub(super) fn new(memory: &GuestRam) -> io::Result<Self> {
        let kvm = Kvm::new().map_err(os)?;
        let vm = kvm.create_vm().map_err(os)?;
        let slot = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: memory.bytes(),
            userspace_addr: memory.host_address(),
        };
        // SAFETY: the slot is exactly the memory's own mapping. If the mapping goes first, the hypervisor notices and the guest
        // finds nothing there: it never sees memory of ours.
        unsafe { vm.set_user_memory_region(slot) }.map_err(os)?;
        let vcpu = vm.create_vcpu(0).map_err(os)?;
        vcpu.set_cpuid2(cpuid(&kvm)?).map_err(os)?;
        let sregs = vcpu.get_sregs().map_err(os)?;
        Ok(Self { vcpu, _vm: vm, sregs, bytes: memory.bytes(), stack: 0, thread_base: None })
    }

    /// The size of its memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The descriptor of its processor, for the filter that lets a thread do nothing but run it.
    pub(super) fn vcpu_fd(&self) -> i32 {
        self.vcpu.as_raw_fd()
    }

    /// Sets the processor up to begin at `entry` with this stack. The space must have its [`lay_foundation`].
    pub(super) fn prepare(&mut self, foundation: &Foundation, entry: u64, stack: u64) -> io::Result<()> {
        let sregs = &mut self.sregs;
        (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (CR0, ROOT, CR4, EFER);
        (sregs.cs, sregs.ss) = (user_code(), user_data());
        (sregs.ds, sregs.es, sregs.fs, sregs.gs) = (user_data(), user_data(), user_data(), user_data());
        sregs.tr = segment(TASK_SELECTOR, 11, 0);
        (sregs.tr.base, sregs.tr.limit, sregs.tr.s, sregs.tr.g) = (TASK, TASK_LIMIT, 0, 0);
        (sregs.gdt.base, sregs.gdt.limit) = (TABLES, 0x3f);
        (sregs.idt.base, sregs.idt.limit) = (INTERRUPTS, 0xfff);
        self.vcpu.set_sregs(sregs).map_err(os)?;
        self.stack = foundation.stack;
        let msr = |index, data| kvm_msr_entry { index, data, ..kvm_msr_entry::default() };
        let star = u64::from(USER_BASE | 3) << 48 | u64::from(KERNEL_CODE) << 32;
        let entries = [msr(MSR_STAR, star), msr(MSR_LSTAR, GATE), msr(MSR_SFMASK, CALL_MASK)];
        let msrs = Msrs::from_entries(&entries).map_err(io::Error::other)?;
        if self.vcpu.set_msrs(&msrs).map_err(os)? != entries.len() {
            return Err(io::Error::other("the processor doesn't accept the registers of `syscall`"));
        }
        self.widen_state();
        let regs = kvm_regs { rip: entry, rsp: stack, rflags: FIXED_FLAGS, ..kvm_regs::default() };
        self.vcpu.set_regs(&regs).map_err(os)?;
        self.vcpu.set_sync_valid_reg(SyncReg::Register);
        self.vcpu.set_sync_valid_reg(SyncReg::SystemRegister);
        Ok(())
    }

    /// As much extended state as the processor has. Where KVM refuses it, the guest's CPUID lists none, and the guest uses SSE.
    fn widen_state(&self) {
        let mut xcrs = kvm_xcrs { nr_xcrs: 1, ..kvm_xcrs::default() };
        for wanted in [XCR0_WANTED, 7, 3] {
            if let Some(first) = xcrs.xcrs.first_mut() {
                first.value = wanted;
            }
            if self.vcpu.set_xcrs(&xcrs).is_ok() {
                return;
            }
        }
    }

    /// Blocks every signal for this thread, but `kick` while the guest runs: it ends the run, and runs no handler.
    pub(super) fn listen_for(&self, kick: i32) -> io::Result<()> {
        regent_sandbox::block_signals();
        /// `struct kvm_signal_mask` with the kernel's own eight bytes of signals.
        #[repr(C, packed)]
        struct Mask {
            len: u32,
            signals: u64,
        }
        const KVM_SET_SIGNAL_MASK: libc::c_ulong = 0x4004_ae8b;
        let bit = u32::try_from(kick - 1).ok().and_then(|shift| 1_u64.checked_shl(shift));
        let mask = Mask { len: 8, signals: !bit.ok_or_else(|| io::Error::other("not a signal"))? };
        // SAFETY: a vCPU descriptor and a live mask with as many bytes as its length says.
        let raw = unsafe { libc::ioctl(self.vcpu.as_raw_fd(), KVM_SET_SIGNAL_MASK, &raw const mask) };
        if raw == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Runs the guest until it wants something.
    pub(super) fn run(&mut self, space: &Space) -> VcpuStop {
        if let Some(base) = self.thread_base.take() {
            self.vcpu.sync_regs_mut().sregs.fs.base = base;
            self.vcpu.set_sync_dirty_reg(SyncReg::SystemRegister);
        }
        let port = match self.vcpu.run() {
            Ok(VcpuExit::IoOut(port, _)) => u8::try_from(port).unwrap_or(0),
            // No port of ours; like the guest's own `out` below.
            Ok(VcpuExit::IoIn(..)) => 0,
            Ok(VcpuExit::Intr) => return VcpuStop::Interrupted,
            Ok(VcpuExit::Shutdown) => return VcpuStop::Dead("the processor shut down"),
            Ok(VcpuExit::FailEntry(..)) => return VcpuStop::Dead("the processor can't be entered"),
            Ok(VcpuExit::InternalError) => return VcpuStop::Dead("the hypervisor failed"),
            Ok(_other) => return VcpuStop::Dead("an exit that no program can cause"),
            Err(error) if error.errno() == libc::EINTR || error.errno() == libc::EAGAIN => {
                return VcpuStop::Interrupted;
            }
            Err(_) => return VcpuStop::Dead("the hypervisor refuses to run it"),
        };
        let registers = self.vcpu.sync_regs();
        let (regs, at) = (registers.regs, registers.regs.rip);
        if port == CALL_PORT && (GATE..GATE + PAGE_BYTES).contains(&at) {
            let arguments = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
            return VcpuStop::Call { number: regs.rax, arguments };
        }
        if port >= FAULT_PORT && (STUBS..STUBS + PAGE_BYTES).contains(&at) {
            let fault = self.fault(space, port - FAULT_PORT, regs.rsp, registers.sregs.cr2);
            return fault.map_or(VcpuStop::Dead("the exception stack is missing"), VcpuStop::Fault);
        }
        // The guest's own `in` or `out`: where ring 0 is emulated it comes to us, on hardware it is a protection fault.
        VcpuStop::Fault(GuestFault {
            vector: 13,
            error: 0,
            address: 0,
            at,
            stack: regs.rsp,
            flags: regs.rflags,
        })
    }

    /// What the processor has put on the stack of exceptions.
    fn fault(&self, space: &Space, vector: u8, stack: u64, address: u64) -> Option<GuestFault> {
        let word = |index: u64| {
            let offset = stack.checked_sub(STACK)?.checked_add(index * 8)?;
            (offset < PAGE_BYTES).then(|| space.physical_word(self.stack | offset))?
        };
        let with_error = matches!(vector, 8 | 10..=14 | 17 | 21 | 29 | 30);
        let (error, first) = if with_error { (word(0)?, 1) } else { (0, 0) };
        let (at, flags, stack) = (word(first)?, word(first + 2)?, word(first + 3)?);
        Some(GuestFault { vector, error, address, at, stack, flags })
    }

    /// Gives the guest its answer; it continues behind its `syscall`.
    pub(super) fn answer(&mut self, value: u64) {
        let registers = self.vcpu.sync_regs_mut();
        let (at, flags) = (registers.regs.rcx, registers.regs.r11);
        registers.regs.rax = value;
        let stack = registers.regs.rsp;
        self.go_on(at, stack, flags);
    }

    /// Lets the guest try again what faulted.
    pub(super) fn retry(&mut self, fault: &GuestFault) {
        self.go_on(fault.at, fault.stack, fault.flags);
    }

    fn go_on(&mut self, at: u64, stack: u64, flags: u64) {
        let registers = self.vcpu.sync_regs_mut();
        // An address that is none would fault in ring 0 on some processors: bend it to one that faults in the guest.
        registers.regs.rip = if at < GATE { at } else { 0 };
        registers.regs.rsp = stack;
        registers.regs.rflags = flags & USER_FLAGS | FIXED_FLAGS;
        let in_ring_3 = registers.sregs.cs.dpl == 3 && registers.sregs.cs.selector == USER_CODE;
        if !in_ring_3 {
            (registers.sregs.cs, registers.sregs.ss) = (user_code(), user_data());
            self.vcpu.set_sync_dirty_reg(SyncReg::SystemRegister);
        }
        self.vcpu.set_sync_dirty_reg(SyncReg::Register);
    }

    /// Sets the base of the guest's thread storage (`%fs`).
    pub(super) fn set_thread_base(&mut self, base: u64) {
        self.thread_base = Some(base);
    }

    /// The base of the guest's thread storage.
    pub(super) fn thread_base(&self) -> u64 {
        self.thread_base.unwrap_or_else(|| self.vcpu.sync_regs().sregs.fs.base)
    }
}

/// Where the machine's own pages are in physical memory, as far as we need to find them again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foundation {
    stack: u64,
}

/// Puts the machine's own pages into an empty space. They become part of the image.
pub(super) fn lay_foundation(space: &mut Space) -> Result<Foundation, OutOfMemory> {
    let mut tables = Vec::new();
    for descriptor in DESCRIPTORS {
        tables.extend(descriptor.to_le_bytes());
    }
    let low = u64::from(TASK_LIMIT) | (TASK & 0xff_ffff) << 16 | 0x8b << 40 | (TASK >> 24 & 0xff) << 56;
    tables.extend(low.to_le_bytes());
    tables.extend((TASK >> 32).to_le_bytes());
    tables.resize((TASK - TABLES) as usize, 0);
    // The task segment: nothing but stacks. Its limit leaves no room for a map of ports, so that there is no port.
    let mut task = [0_u8; TASK_LIMIT as usize + 1];
    for at in [4, 0x24] {
        for (slot, byte) in task.iter_mut().skip(at).zip(STACK_TOP.to_le_bytes()) {
            *slot = byte;
        }
    }
    tables.extend(task);
    let mut interrupts = Vec::new();
    for vector in 0..VECTORS {
        let stub = STUBS + u64::from(vector) * STUB_BYTES;
        // An interrupt gate of ring 0 on stack 1: `int` from the guest can't enter it.
        let low = stub & 0xffff
            | u64::from(KERNEL_CODE) << 16
            | 1 << 32
            | 0x8e00 << 32
            | (stub >> 16 & 0xffff) << 48;
        interrupts.extend(low.to_le_bytes());
        interrupts.extend((stub >> 32).to_le_bytes());
    }
    let mut stubs = Vec::new();
    for vector in 0..VECTORS {
        stubs.extend(out_stub(FAULT_PORT + vector));
    }
    space.install(TABLES, &tables, Machinery::State)?;
    space.install(INTERRUPTS, &interrupts, Machinery::State)?;
    space.install(STUBS, &stubs, Machinery::Code)?;
    let stack = space.install(STACK, &[], Machinery::State)?;
    space.install(GATE, &out_stub(CALL_PORT), Machinery::Gate)?;
    Ok(Foundation { stack })
}

/// `out port, al; hlt`, padded.
fn out_stub(port: u8) -> [u8; STUB_BYTES as usize] {
    let mut stub = [0xf4; STUB_BYTES as usize];
    for (slot, byte) in stub.iter_mut().zip([0xe6, port]) {
        *slot = byte;
    }
    stub
}

fn user_code() -> kvm_segment {
    kvm_segment { l: 1, db: 0, ..segment(USER_CODE, 11, 3) }
}

fn user_data() -> kvm_segment {
    segment(USER_STACK, 3, 3)
}

fn segment(selector: u16, kind: u8, dpl: u8) -> kvm_segment {
    kvm_segment {
        base: 0,
        limit: u32::MAX,
        selector,
        type_: kind,
        present: 1,
        dpl,
        db: 1,
        s: 1,
        l: 0,
        g: 1,
        ..kvm_segment::default()
    }
}

/// What processors this host can give; asking takes longer than making a machine.
fn cpuid(kvm: &Kvm) -> io::Result<&'static CpuId> {
    static SUPPORTED: OnceLock<CpuId> = OnceLock::new();
    if let Some(known) = SUPPORTED.get() {
        return Ok(known);
    }
    let supported = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(os)?;
    Ok(SUPPORTED.get_or_init(|| supported))
}

fn os(error: kvm_ioctls::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}
