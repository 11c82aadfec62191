//! Which calls ordinary programs need, and which are refused by name.

use libc::*;

/// Allowed whatever their arguments. `clone`, `ioctl`, `socket`, `openat`, `fchmod` and a few more are checked instead;
/// `clone3` and `openat2` are on no list: their flags lie in memory, where a filter can't see them, and `ENOSYS` makes
/// libraries use the older call.
#[rustfmt::skip]
pub(super) const ALLOWED: &[c_long] = &[
    // Files and directories.
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_preadv2,
    SYS_pwritev2, SYS_close, SYS_close_range, SYS_lseek, SYS_fstat, SYS_newfstatat, SYS_statx,
    SYS_statfs, SYS_fstatfs, SYS_faccessat, SYS_faccessat2, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_getdents64,
    SYS_mkdirat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_linkat, SYS_symlinkat, SYS_readlinkat,
    SYS_fchown, SYS_fchownat, SYS_umask, SYS_truncate, SYS_ftruncate,
    SYS_fallocate, SYS_fadvise64, SYS_readahead, SYS_fsync, SYS_fdatasync, SYS_sync, SYS_syncfs, SYS_sync_file_range,
    SYS_flock, SYS_fcntl, SYS_dup, SYS_dup3, SYS_pipe2, SYS_sendfile, SYS_splice, SYS_tee, SYS_vmsplice,
    SYS_copy_file_range, SYS_utimensat, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_setxattr, SYS_lsetxattr,
    SYS_fsetxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr,
    SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch,
    // Waiting.
    SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_ppoll, SYS_pselect6, SYS_eventfd2,
    SYS_signalfd4, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime, SYS_io_setup, SYS_io_destroy,
    SYS_io_submit, SYS_io_cancel, SYS_io_getevents,
    // Memory.
    SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_msync, SYS_mincore, SYS_mlock, SYS_mlock2,
    SYS_mlockall, SYS_munlock, SYS_munlockall, SYS_pkey_alloc, SYS_pkey_free, SYS_pkey_mprotect, SYS_mseal,
    SYS_membarrier, SYS_get_mempolicy, SYS_set_mempolicy, SYS_mbind, SYS_remap_file_pages,
    // Processes, threads, signals.
    SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_getpid, SYS_getppid, SYS_gettid,
    SYS_getpgid, SYS_setpgid, SYS_getsid, SYS_setsid, SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigaction,
    SYS_rt_sigprocmask, SYS_rt_sigpending, SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo, SYS_rt_sigreturn, SYS_sigaltstack, SYS_pidfd_open, SYS_pidfd_send_signal,
    SYS_set_tid_address, SYS_set_robust_list, SYS_get_robust_list, SYS_futex, SYS_futex_waitv, SYS_rseq,
    SYS_restart_syscall, SYS_prctl, SYS_getrlimit, SYS_setrlimit, SYS_prlimit64, SYS_getrusage, SYS_times,
    SYS_getpriority, SYS_setpriority, SYS_ioprio_get, SYS_ioprio_set, SYS_sched_yield, SYS_sched_getaffinity,
    SYS_sched_setaffinity, SYS_sched_getparam, SYS_sched_setparam, SYS_sched_getscheduler, SYS_sched_setscheduler,
    SYS_sched_getattr, SYS_sched_setattr, SYS_sched_get_priority_max, SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval, SYS_getcpu, SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule,
    SYS_landlock_restrict_self,
    // Identity: there is one uid, one gid and no capability, so these can't gain anything.
    SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_setuid,
    SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid, SYS_setgroups,
    SYS_capget, SYS_capset,
    // Time.
    SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_getitimer,
    SYS_setitimer, SYS_timer_create, SYS_timer_delete, SYS_timer_gettime, SYS_timer_settime, SYS_timer_getoverrun,
    // Sockets that exist already.
    SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect, SYS_getsockname, SYS_getpeername, SYS_getsockopt,
    SYS_setsockopt, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_shutdown,
    // System V and POSIX IPC, in a namespace of its own.
    SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl, SYS_msgget,
    SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend, SYS_mq_timedreceive,
    SYS_mq_notify, SYS_mq_getsetattr,
    // The rest.
    SYS_uname, SYS_sysinfo, SYS_getrandom,
];

/// Older calls that only x86-64 still has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(super) const ALLOWED_LEGACY: &[c_long] = &[
    libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_mkdir,
    libc::SYS_rmdir, libc::SYS_unlink, libc::SYS_rename, libc::SYS_link, libc::SYS_symlink, libc::SYS_readlink,
    libc::SYS_chown, libc::SYS_lchown, libc::SYS_getdents, libc::SYS_utime,
    libc::SYS_utimes, libc::SYS_futimesat, libc::SYS_dup2, libc::SYS_pipe, libc::SYS_poll, libc::SYS_select,
    libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_signalfd, libc::SYS_inotify_init,
    libc::SYS_fork, libc::SYS_vfork, libc::SYS_getpgrp, libc::SYS_alarm, libc::SYS_pause, libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const ALLOWED_LEGACY: &[c_long] = &[];

/// Refused by name, so that a program hears "not permitted" and not "no such call".
#[rustfmt::skip]
pub(super) const REFUSED: &[c_long] = &[
    // Namespaces and mounts.
    SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_fsopen, SYS_fsconfig, SYS_fsmount,
    SYS_fspick, SYS_move_mount, SYS_open_tree, SYS_mount_setattr,
    // Other processes' memory, descriptors and pages.
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise, SYS_process_mrelease,
    SYS_pidfd_getfd, SYS_kcmp, SYS_move_pages, SYS_migrate_pages,
    // Large kernel surfaces with a history.
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
    SYS_keyctl, SYS_add_key, SYS_request_key, SYS_fanotify_init, SYS_fanotify_mark,
    // Files without paths.
    SYS_open_by_handle_at, SYS_name_to_handle_at,
    // The machine itself.
    SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_reboot, SYS_swapon,
    SYS_swapoff, SYS_acct, SYS_quotactl, SYS_quotactl_fd, SYS_sethostname, SYS_setdomainname, SYS_settimeofday,
    SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_syslog, SYS_vhangup, SYS_nfsservctl, SYS_lookup_dcookie,
];

/// The same, for calls that only x86-64 has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(super) const REFUSED_LEGACY: &[c_long] = &[
    libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS_ustat, libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const REFUSED_LEGACY: &[c_long] = &[];

/// Refused as well where the host's own tree, IPC and events are in reach.
#[rustfmt::skip]
pub(super) const REFUSED_BARE: &[c_long] = &[
    // Sockets, local ones too: the host's socket files can be connected to.
    SYS_socket,
    // Attributes of files by path, which Landlock does not see.
    SYS_fchmodat, SYS_fchmodat2, SYS_fchownat, SYS_setxattr, SYS_lsetxattr, SYS_removexattr, SYS_lremovexattr,
    // The host's shared memory, semaphores and queues.
    SYS_shmget, SYS_shmat, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl, SYS_msgget, SYS_msgsnd,
    SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink,
    // What others do with their files.
    SYS_inotify_init1,
    // How others are scheduled.
    SYS_setpriority, SYS_ioprio_set, SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr,
];

/// The same, for calls that only x86-64 has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(super) const REFUSED_BARE_LEGACY: &[c_long] = &[
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat,
    libc::SYS_inotify_init,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const REFUSED_BARE_LEGACY: &[c_long] = &[];

/// What a thread that runs a guest may call freely: waiting, its own memory, random numbers, ending.
#[rustfmt::skip]
pub(super) const GUEST_THREAD: &[c_long] = &[
    SYS_futex, SYS_munmap, SYS_madvise, SYS_mremap, SYS_brk, SYS_getrandom, SYS_clock_gettime, SYS_sched_yield,
    SYS_rt_sigprocmask, SYS_rt_sigtimedwait, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall, SYS_rseq,
    SYS_gettid, SYS_exit,
];
