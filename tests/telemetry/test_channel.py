"""The telemetry socket: who may connect, over TCP by a secret, on one node by the user."""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from launcher import channel
from launcher.channel import Listener, connect, prove, split_address


def collectors_word(listener: Listener, secret: str) -> Future[bool]:
    """Let a thread be the collector: accept one connection and say whether the peer has proved itself."""

    def serve() -> bool:
        listener.socket.setblocking(True)
        listener.socket.settimeout(20)
        connection = listener.accept()
        assert connection is not None
        with connection:
            return prove(connection, secret, first=True)

    pool = ThreadPoolExecutor(1)
    future = pool.submit(serve)
    pool.shutdown(wait=False)
    return future


class TestOverTcp:
    def test_who_knows_the_secret_is_let_in(self) -> None:
        listener = Listener("127.0.0.1:0")
        word = collectors_word(listener, listener.secret)
        with connect(listener.address, listener.secret):
            assert word.result(20)
        listener.close()

    @pytest.mark.parametrize("secret", ["", "another"])
    def test_who_does_not_is_refused_at_both_ends(self, secret: str) -> None:
        listener = Listener("127.0.0.1:0")
        word = collectors_word(listener, listener.secret)
        with pytest.raises(ConnectionError, match="does not know this run's secret"):
            connect(listener.address, secret)
        assert not word.result(20)
        listener.close()

    def test_an_answer_cannot_be_reflected(self) -> None:
        """A stranger sends back whatever he gets: the collector's own challenge and answer."""
        mine, stranger = socket.socketpair()
        with mine, stranger, ThreadPoolExecutor(1) as pool:
            word = pool.submit(prove, mine, "secret", first=True)
            for size in (channel.CHALLENGE, channel.DIGEST):
                stranger.sendall(stranger.recv(size, socket.MSG_WAITALL))
            assert not word.result(20)

    def test_a_peer_that_leaves_in_between_is_refused(self) -> None:
        mine, other = socket.socketpair()
        other.sendall(b"x" * channel.CHALLENGE)
        other.close()
        with mine:
            assert not prove(mine, "secret", first=True)

    def test_each_run_has_a_secret_of_its_own(self) -> None:
        first, second = Listener("127.0.0.1:0"), Listener("127.0.0.1:0")
        assert len(first.secret) == 64
        assert first.secret != second.secret
        first.close()
        second.close()

    @pytest.mark.parametrize("text", ["", "node0", ":29500", "node0:", "node0:x", "node0:65536", "node0:-1"])
    def test_an_address_that_is_none_is_named(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not HOST:PORT"):
            split_address(text)

    def test_an_address_of_version_6_has_brackets(self) -> None:
        assert split_address("[::1]:29500") == ("::1", 29500)


class TestOnOneNode:
    def test_the_socket_lies_in_a_folder_that_is_ours_alone_and_goes_with_it(self) -> None:
        listener = Listener()
        path = Path(listener.address.removeprefix("unix:"))
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with connect(listener.address):
            accepted = listener.accept()
            assert accepted is not None
            accepted.close()
        listener.close()
        assert not path.parent.exists()
        with pytest.raises(ConnectionError, match="no collector at unix:"):
            connect(listener.address)

    @pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the peer's user on Linux alone")
    @pytest.mark.parametrize(("uid", "let_in"), [(0, True), (os.getuid(), True), (os.getuid() + 1, False)])
    def test_another_user_is_shut_out(self, monkeypatch: pytest.MonkeyPatch, uid: int, let_in: bool) -> None:
        """Even where the folder's mode would let him through."""
        listener = Listener()
        told = struct.pack("3i", os.getpid(), uid, uid)
        monkeypatch.setattr(socket.socket, "getsockopt", lambda *_: told)
        with connect(listener.address) as peer:
            accepted = listener.accept()
            assert (accepted is not None) == let_in
            if accepted is None:
                assert peer.recv(1) == b"", "his connection is closed"
            else:
                accepted.close()
        listener.close()

    def test_nobody_waits_is_no_error(self) -> None:
        listener = Listener()
        assert listener.accept() is None
        listener.close()


def test_sockets_have_a_folder_that_their_path_fits_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """As deep as macOS makes it is fine; deeper ones are left for /tmp."""
    of_macos = "/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T"
    monkeypatch.setattr(tempfile, "tempdir", of_macos)
    assert channel.temporary_root() == of_macos
    monkeypatch.setattr(tempfile, "tempdir", "/" + "d" * 80)
    assert channel.temporary_root() == "/tmp"
