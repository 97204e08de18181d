"""The telemetry socket: a unix socket in a private folder, or TCP between nodes with a shared secret.

Over TCP both ends prove that they know the run's secret (HMAC-SHA256 of the other's random challenge, with a
label for the direction, so that an answer cannot be reflected) before the first event is read.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
import sys
import tempfile
from pathlib import Path

HANDSHAKE_S = 5.0
SOCKET_PATH_BYTES = 103
"""What the path of a unix socket holds on macOS; on Linux four bytes more."""
LONGEST_SOCKET = len("/worldsize-xxxxxxxx/pymp-xxxxxxxx/listener-xxxxxxxx")
"""Of the sockets below an agent's temporary folder; multiprocessing's own names are the longest."""
CHALLENGE = 32
DIGEST = 32


class Listener:
    """A listening socket; `address` is what ranks connect to, `secret` what they must know (TCP only)."""

    def __init__(self, listen: str = "") -> None:
        """Listen on a unix socket, or on TCP where `listen` is `HOST:PORT` (port 0: the system's choice).

        Raises:
            ValueError: `listen` is not `HOST:PORT`.
            OSError: the address cannot be bound.
        """
        self.secret = ""
        self._folder: Path | None = None
        if not listen:
            # mkdtemp makes the folder 0700: nobody else can reach the socket in it.
            self._folder = Path(tempfile.mkdtemp(prefix="worldsize-"))
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.bind(str(self._folder / "run.sock"))
            self.address = f"unix:{self._folder / 'run.sock'}"
        else:
            host, port = split_address(listen)
            self.secret = secrets.token_hex(32)
            self.socket = socket.create_server((host, port))
            self.address = f"tcp:{host}:{self.socket.getsockname()[1]}"
        self.socket.listen(128)
        self.socket.setblocking(False)

    def accept(self) -> socket.socket | None:
        """Accept one connection; None where the peer is not allowed, or has gone already."""
        try:
            connection, _ = self.socket.accept()
        except OSError:
            return None
        if self._folder is not None and not _same_user(connection):
            connection.close()
            return None
        return connection

    def close(self) -> None:
        """Stop listening and remove the socket's folder."""
        self.socket.close()
        if self._folder is not None:
            (self._folder / "run.sock").unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._folder.rmdir()


def temporary_root() -> str:
    """Where agents make their folders: the user's place, `/tmp` where a socket's path would not fit there."""
    chosen = tempfile.gettempdir()
    if len(os.fsencode(chosen)) + LONGEST_SOCKET <= SOCKET_PATH_BYTES or not os.access("/tmp", os.W_OK):
        return chosen
    return "/tmp"


def split_address(text: str) -> tuple[str, int]:
    """Split `HOST:PORT`.

    Raises:
        ValueError: there is no port, or it is not 0 to 65535.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    return host.strip("[]"), int(port)


def connect(address: str, secret: str = "", timeout_s: float = HANDSHAKE_S) -> socket.socket:
    """Connect to `unix:PATH` or `tcp:HOST:PORT`, over TCP with the handshake.

    Raises:
        ConnectionError: nobody listens there, or the two ends do not share the secret.
    """
    kind, _, place = address.partition(":")
    try:
        if kind == "unix":
            return _connect_unix(place, timeout_s)
        connection = socket.create_connection(split_address(place), timeout_s)
    except OSError as error:
        raise ConnectionError(f"no collector at {address}: {error}") from error
    if not prove(connection, secret, first=False):
        connection.close()
        raise ConnectionError(f"the collector at {address} does not know this run's secret")
    return connection


def _connect_unix(path: str, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def prove(connection: socket.socket, secret: str, *, first: bool) -> bool:
    """Run the mutual challenge on a fresh TCP connection; whether the other end knows the secret.

    Both ends send a challenge and then the answer to the other's. `first` is True at the collector.
    """
    connection.settimeout(HANDSHAKE_S)
    mine = secrets.token_bytes(CHALLENGE)
    own, other = (b"collector", b"rank") if first else (b"rank", b"collector")
    try:
        connection.sendall(mine)
        theirs = _receive(connection, CHALLENGE)
        connection.sendall(_answer(secret, own, theirs, mine))
        return hmac.compare_digest(_receive(connection, DIGEST), _answer(secret, other, mine, theirs))
    except OSError:
        return False


def _answer(secret: str, label: bytes, challenge: bytes, own: bytes) -> bytes:
    return hmac.digest(secret.encode(), label + challenge + own, "sha256")


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the other end closed the connection during the handshake")
        data += part
    return data


def _same_user(connection: socket.socket) -> bool:
    """Whether the peer of a unix socket is this user (or root, who could read the run anyway)."""
    if sys.platform != "linux":
        return True  # the folder's mode 0700 alone keeps others out
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return uid in (0, os.getuid())
