"""The script that `process` starts: gives up what a submission does not need, then runs its cells.

On Linux, bubblewrap has confined it already, where it is installed. Otherwise, if the kernel lets ordinary users make
namespaces, this script does the same: the submission has no network except its own loopback, a file system that is
read-only except for its own folder and has the system's programs, Python and the lesson, and nothing of other people's:
no home, exchange, shared folder or other submission, whatever its owner and mode. It sees no other processes, and one
kill ends everything that it started. Elsewhere it has only the system's resource limits. The first message to the
grader says which of these are in force.

This file imports only the standard library, and nothing from the submission's folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import IO, Any

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = -100, 0x8000, 1
SYS_MOUNT_SETATTR = 442  # the same number on every architecture; Linux 5.12
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
CAPABILITY_VERSION_3 = 0x20080522
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _call(name: str, *arguments: object) -> int:
    """Call a function of libc; raise OSError if it fails."""
    done = int(getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments))
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return done


def _prctl(option: int, value: int) -> None:
    _call("prctl", option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def undumpable() -> None:
    """Let no other process of this user read this one's memory through /proc (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            _prctl(PR_SET_DUMPABLE, 0)


def _mount(source: str, target: str, kind: str, flags: int, data: str | None = None) -> None:
    _call(
        "mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode() if data else None
    )


def _read_only(path: str, on: bool, recursive: bool) -> None:
    attr = _MountAttr(MOUNT_ATTR_RDONLY if on else 0, 0 if on else MOUNT_ATTR_RDONLY, 0, 0)
    _call(
        "syscall",
        SYS_MOUNT_SETATTR,
        AT_FDCWD,
        path.encode(),
        AT_RECURSIVE if recursive else 0,
        ctypes.byref(attr),
        ctypes.c_size_t(ctypes.sizeof(attr)),
    )


def _unshare() -> bool:
    """Move to new namespaces; return whether that was possible."""
    uid, gid = os.getuid(), os.getgid()
    own = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC
    try:
        _call("unshare", CLONE_NEWUSER | own)
    except OSError:
        try:
            _call("unshare", own)  # for a privileged user, where user namespaces are disabled
        except OSError:
            return False
        return True
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return True


def _hide(path: str, needed: list[str]) -> None:
    """Put an empty folder in the place of a path, with only what is needed of it."""
    if not Path(path).is_dir():
        if Path(path).exists():
            _mount("/dev/null", path, "none", MS_BIND)
        return
    kept = [(one, os.open(one, os.O_PATH)) for one in needed if Path(path) in Path(one).parents and Path(one).exists()]
    _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=256k" if kept else "size=4k")
    for one, handle in kept:
        if Path(f"/proc/self/fd/{handle}").is_dir():
            Path(one).mkdir(parents=True, exist_ok=True)
        else:
            Path(one).parent.mkdir(parents=True, exist_ok=True)
            Path(one).touch()
        _mount(f"/proc/self/fd/{handle}", one, "none", MS_BIND | MS_REC)
        os.close(handle)


def _restrict_files(folder: str, hide: list[str], needed: list[str]) -> bool:
    """Make everything except `folder` read-only and hide the paths in `hide`; return whether all of it worked.

    What is `needed` inside of a hidden folder stays where it is.
    """
    try:
        _mount("none", "/", "none", MS_REC | MS_PRIVATE)
        around = str(Path(folder).parent)  # the folder of all running submissions: the tmpfs hides the others
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        _mount("tmpfs", around, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k")
        Path(folder).mkdir()
        _mount(f"/proc/self/fd/{handle}", folder, "none", MS_BIND)
        os.close(handle)
        for path in hide:
            _hide(path, [around, *needed])
        with contextlib.suppress(OSError):  # where a container hides parts of /proc, a new one is refused
            _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
        if Path("/dev/shm").is_dir():  # DataLoader workers need it
            _mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=256m")
        _read_only("/", on=True, recursive=True)
        _read_only(folder, on=False, recursive=False)
        if Path("/dev/shm").is_dir():
            _read_only("/dev/shm", on=False, recursive=False)
    except OSError:
        return False
    return True


def _enable_loopback() -> None:
    """Enable the namespace's own 127.0.0.1, for programs that connect to themselves."""
    import fcntl
    import socket
    import struct

    with contextlib.suppress(OSError), socket.socket() as door:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(door, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(door, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def _drop_capabilities() -> None:
    """Drop the rights of the namespace's root, so that the submission cannot undo the confinement."""
    for capability in range(64):
        with contextlib.suppress(OSError):
            _prctl(PR_CAPBSET_DROP, capability)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def _set_resource_limits(wanted: dict[str, int], counts_alone: bool) -> list[str]:
    """Set the resource limits that this system has; return the names of those in force."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    limits = {"file": ("RLIMIT_FSIZE", wanted["file_bytes"]), "core": ("RLIMIT_CORE", 0)}
    if sys.platform == "linux":  # macOS accepts it and does nothing
        limits["memory"] = ("RLIMIT_DATA", wanted["memory_bytes"])
        if counts_alone and os.getuid() != 0:  # otherwise the user's other processes count; root has no limit
            limits["processes"] = ("RLIMIT_NPROC", wanted["processes"])
    done = []
    for name, (kind, value) in limits.items():
        with contextlib.suppress(OSError, ValueError, AttributeError):
            resource.setrlimit(getattr(resource, kind), (value, value))
            done.append(name)
    return done


def _wait_for(child: int) -> None:
    """Wait for `child`, and exit with its status."""
    while True:
        try:
            _, status = os.waitpid(child, 0)
        except InterruptedError:
            continue
        if os.WIFSIGNALED(status):
            os._exit(128 + os.WTERMSIG(status))
        os._exit(os.WEXITSTATUS(status))


def isolate(settings: dict[str, Any], report: IO[bytes]) -> list[str]:
    """Move to namespaces, as far as the system allows, in a child process; return what is in force there.

    No other process of this user can look into the result (`undumpable`).
    """
    in_force: list[str] = list(settings["in_force"])
    alone = settings["namespaces"] and not in_force and _unshare()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after `unshare`, which clears it
    if alone:
        in_force += ["processes of its own", "no network"]
        child = os.fork()
        if child:
            undumpable()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            report.write(json.dumps({"pid": child}).encode() + b"\n")
            _wait_for(child)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _enable_loopback()
        if _restrict_files(settings["folder"], [*settings["others"], *settings["hide"]], settings["needed"]):
            in_force.append("a file system of its own")
        _drop_capabilities()
    undumpable()  # not before: of a process that is, only root may write the files in /proc that isolate it
    return in_force


def main() -> None:
    """Confine this process as its one argument (JSON) says, then run the cells that arrive on stdin."""
    settings = json.loads(sys.argv[1])
    sys.path[:] = settings["path"]  # without this script's folder, whose modules must not be importable by bare names
    sys.argv[1:] = []
    report, commands = os.fdopen(os.dup(1), "wb", buffering=0), os.dup(0)
    in_force: list[str] = []
    if sys.platform == "linux":
        in_force = isolate(settings, report)
    if "no network" not in in_force or settings["in_force"]:
        report.write(json.dumps({"pid": os.getpid()}).encode() + b"\n")
    in_force += _set_resource_limits(settings["limits"], counts_alone="no network" in in_force)
    os.chdir(settings["folder"])
    from fakegpu_lab.course.grade.sandbox import cell_runner

    cell_runner.serve(report, commands, settings, in_force)


if __name__ == "__main__":
    main()
