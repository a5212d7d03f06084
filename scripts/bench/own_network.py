"""Runs a command in a network of its own that has the loopback interface alone, so that the bytes
which its processes send each other can be read from that interface's counter.

    own_network.py COMMAND...      exit 3 where this machine does not let us (root is needed)
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
REFUSED = 3


def enter():
    """Leaves the machine's network; raises OSError where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def sent_bytes(process="self"):
    """Bytes that have been sent over the loopback interface of a process's network; None when the
    process has ended."""
    try:
        with open(f"/proc/{process}/net/dev", encoding="ascii") as file:
            for line in file:
                name, _, counters = line.partition(":")
                if name.strip() == "lo":
                    return int(counters.split()[8])
    except OSError:
        pass
    return None


def main():
    try:
        enter()
    except OSError as error:
        print(f"own_network.py: a network of its own: {error}; run as root", file=sys.stderr)
        return REFUSED
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
