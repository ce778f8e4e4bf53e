#!/usr/bin/env python3
"""Forwards packets between two TUN devices, each after a fixed time: a slow link for kernels without netem.

    slow-link.py FIRST SECOND MILLISECONDS

Makes the devices FIRST and SECOND, prints `ready`, and forwards until it is ended. Whoever started it moves the devices into network namespaces;
the rate is set there, with `tc ... tbf`. Needs root.
"""

import collections
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
LARGEST_PACKET = 65536


def tun(name):
    """A TUN device that gives whole IP packets."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    first, second = tun(sys.argv[1]), tun(sys.argv[2])
    delay = float(sys.argv[3]) / 1000
    to = {first: second, second: first}
    # Packets under way, each with the time at which it arrives; the delay is the same for all, so they stay in order.
    waiting = collections.deque()
    print("ready", flush=True)
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for device in select.select([first, second], [], [], wait)[0]:
            try:
                packet = os.read(device, LARGEST_PACKET)
            except (BlockingIOError, OSError):  # the other end is not up
                continue
            waiting.append((time.monotonic() + delay, to[device], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, device, packet = waiting.popleft()
            try:
                os.write(device, packet)
            except OSError:  # the other end is not up
                pass


if __name__ == "__main__":
    main()
