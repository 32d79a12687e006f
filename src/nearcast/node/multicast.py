"""UDP multicast: nodes of one link, each a process, hear each other. IPv4, one hop: it is nodes that pass things on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address

from nearcast.errors import SetupError
from nearcast.node.transport import Transport

ANY = "0.0.0.0"

BUFFER = 1 << 20
"""Bytes the system may keep for a node that is busy."""


@dataclass(frozen=True, slots=True)
class Group:
    """A multicast group and port; `interface` is the address of the network interface to use, else the system's."""

    address: str = "239.255.86.40"
    port: int = 8642
    interface: str = ANY

    def __post_init__(self) -> None:
        try:
            multicast = IPv4Address(self.address).is_multicast
            IPv4Address(self.interface)
        except ValueError as error:
            raise SetupError(f"expected IPv4 addresses of a multicast group and an interface, got {error}") from None
        if not multicast:
            raise SetupError(f"expected a multicast address, 224.0.0.0 to 239.255.255.255, got {self.address}")


class MulticastTransport(Transport):
    """A member of a group. A sender is known by its address, as the system tells it: whoever opens many ports is one
    neighbour.
    """

    def __init__(self, group: Group = Group()) -> None:
        super().__init__()
        self._group = group
        self._ear: asyncio.DatagramTransport | None = None
        self._voice: asyncio.DatagramTransport | None = None

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._ear, _ = await loop.create_datagram_endpoint(lambda: _Ear(self), sock=_ear(self._group))
            # A socket of its own: what is bound to a group has no address to speak from.
            self._voice, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=_voice(self._group))
        except OSError as error:
            if self._ear:
                self._ear.close()
            raise SetupError(
                f"expected to join {self._group.address}:{self._group.port} on {self._group.interface}, got {error};"
                " is there a network, and is that the address of one of its interfaces?"
            ) from None

    async def _stop(self) -> None:
        for transport in (self._ear, self._voice):
            if transport:
                transport.close()
        # Sockets are closed by the loop, in its next rounds.
        await asyncio.sleep(0)

    def _send(self, data: bytes) -> None:
        if self._voice:
            self._voice.sendto(data, (self._group.address, self._group.port))

    def heard(self, data: bytes, address: tuple[str, int]) -> None:
        """Takes a datagram from the network."""
        self._hear(data, address[0])


class _Ear(asyncio.DatagramProtocol):
    def __init__(self, transport: MulticastTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Hands a datagram on."""
        self._transport.heard(data, addr)


def _ear(group: Group) -> socket.socket:
    """A socket that hears the group, beside others of the same machine that do."""
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP))
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        # Bound to the group, not to the port alone: what is sent to this machine's own address is not for the group.
        one.bind((group.address, group.port))
        membership = socket.inet_aton(group.address) + socket.inet_aton(group.interface)
        one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        stack.pop_all()
        return one


def _voice(group: Group) -> socket.socket:
    """A socket that speaks to the group, one hop far, also to others of the same machine."""
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP))
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        if group.interface != ANY:
            one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(group.interface))
        one.bind((group.interface, 0))
        stack.pop_all()
        return one
