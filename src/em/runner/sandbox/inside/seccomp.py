"""A seccomp filter that allows only the system calls that plain computing needs.

It lists what is allowed, so calls that newer kernels add are refused. Refused are processes,
threads, sockets, signals to other processes, opening files for writing, changing a file's name,
mode, owner or time, and reading where a symbolic link points, which landlock does not limit.
Landlock or the mounts limit what else can be read.
"""

import ctypes
import os
import struct

MACHINES = {
    # machine: (audit architecture, number of openat, of fcntl, the other allowed numbers)
    "x86_64": (
        0xC000003E,
        257,
        72,
        # read write close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction
        # rt_sigprocmask rt_sigreturn pread64 readv writev access select sched_yield mremap madvise
        (
            *(0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 23, 24, 25, 28),
            # dup nanosleep getpid exit uname getcwd gettimeofday getrusage sysinfo times
            *(32, 35, 39, 60, 63, 79, 96, 98, 99, 100),
            # getuid getgid geteuid getegid getppid sigaltstack gettid time futex sched_getaffinity
            *(102, 104, 107, 108, 110, 131, 186, 201, 202, 204),
            # getdents64 restart_syscall fadvise64
            *(217, 219, 221),
            # clock_gettime clock_getres clock_nanosleep exit_group
            *(228, 229, 230, 231),
            # newfstatat faccessat pselect6 ppoll set_robust_list pipe2 getcpu getrandom
            *(262, 269, 270, 271, 273, 293, 309, 318),
            # membarrier statx rseq faccessat2
            *(324, 332, 334, 439),
        ),
    ),
    "aarch64": (
        0xC00000B7,
        56,
        25,
        # getcwd dup faccessat close pipe2 getdents64 lseek read write readv writev pread64
        (
            *(17, 23, 48, 57, 59, 61, 62, 63, 64, 65, 66, 67),
            # pselect6 ppoll newfstatat fstat
            *(72, 73, 79, 80),
            # exit exit_group futex set_robust_list nanosleep
            *(93, 94, 98, 99, 101),
            # clock_gettime clock_getres clock_nanosleep
            *(113, 114, 115),
            # sched_getaffinity sched_yield restart_syscall
            *(123, 124, 128),
            # sigaltstack rt_sigaction rt_sigprocmask rt_sigreturn times uname getrusage getcpu
            *(132, 134, 135, 139, 153, 160, 165, 168),
            # gettimeofday getpid getppid getuid geteuid getgid getegid gettid sysinfo
            *(169, 172, 173, 174, 175, 176, 177, 178, 179),
            # brk munmap mremap mmap fadvise64 mprotect madvise getrandom membarrier statx rseq
            *(214, 215, 216, 222, 223, 226, 233, 278, 283, 291, 293),
            # faccessat2
            *(439,),
        ),
    ),
}

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # the second: fail with EPERM
_NUMBER, _ARCHITECTURE, _SECOND, _THIRD = 0, 4, 24, 32
# O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND, O_TMPFILE
_WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000 | 0o20000000
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC; not those that set an owner or a signal
_FCNTL = (0, 1, 2, 3, 1030)
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


def instructions(machine: str) -> list[tuple[int, int, int, int]]:
    """Return the filter as instructions: code, jump if true, jump if false, operand."""
    architecture, openat, fcntl, allowed = MACHINES[machine]
    # The program ends with refuse, allow. A negative jump counts from that end.
    head = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 0, -1, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, -1, 0, 0x40000000),  # the x32 numbering of the same calls
        (_JUMP_EQUAL, 0, 3, openat),
        (_LOAD, 0, 0, _THIRD),
        (_JUMP_ANY_BIT, -1, -2, _WRITING),
        (_RETURN, 0, 0, _REFUSE),
        (_JUMP_EQUAL, 0, 2 + len(_FCNTL), fcntl),
        (_LOAD, 0, 0, _SECOND),
        *((_JUMP_EQUAL, -2, 0, command) for command in _FCNTL),
        (_RETURN, 0, 0, _REFUSE),
        *((_JUMP_EQUAL, -2, 0, number) for number in allowed),
    ]
    refuse = len(head)

    def resolved(here: int, jump: int) -> int:
        return jump if jump >= 0 else refuse + (-jump - 1) - here - 1

    body = [
        (code, resolved(here, true), resolved(here, false), operand)
        for here, (code, true, false, operand) in enumerate(head)
    ]
    return [*body, (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]


def install(machine: str) -> None:
    """Apply the filter to this process, for good."""
    libc = ctypes.CDLL(None, use_errno=True)
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in instructions(machine))
    text = ctypes.create_string_buffer(packed, len(packed))
    fields = struct.pack("HP", len(packed) // 8, ctypes.addressof(text))
    program = ctypes.create_string_buffer(fields)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs: " + os.strerror(ctypes.get_errno()))
    if libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp: " + os.strerror(ctypes.get_errno()))
