"""Files of ours: written whole, through links, without remains; archives opened without trust."""

from __future__ import annotations

import io
import os
import stat
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dualcore.data.sources import SourceError, open_arrays
from dualcore.data.storage import ArchiveError, FileState, read_archive, read_signed, write_atomically, write_signed

posix = pytest.mark.skipif(os.name != "posix", reason="links and locks of POSIX")
SOURCE = Path(__file__).resolve().parents[3] / "src"


@posix
def test_a_link_is_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "model.json"
    real.write_bytes(b"old")
    link = tmp_path / "link.json"
    link.symlink_to(Path("real", "model.json"))
    write_atomically(link, b"new")
    with pytest.raises(FileNotFoundError, match=r"Cannot write .*model\.json: there is no folder .*absent"):
        write_atomically(tmp_path / "absent" / "model.json", b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["link.json", "real"]
    assert os.listdir(tmp_path / "real") == ["model.json"]


@posix
def test_devices_are_never_replaced_and_permissions_kept(tmp_path):
    link = tmp_path / "nowhere"
    link.symlink_to(os.devnull)
    write_atomically(link, b"content")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    for mode in (0o600, 0o664):
        (tmp_path / "secret").touch()
        (tmp_path / "secret").chmod(mode)
        write_atomically(tmp_path / "secret", b"new")
        assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == mode


@posix
def test_a_killed_process_leaves_the_old_file(tmp_path):
    killed = """
import os, signal
from pathlib import Path
from dualcore.data import storage
os.fsync = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
storage.write_atomically(Path("model.json"), b"content")
"""
    (tmp_path / "model.json").write_bytes(b"old")
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", killed], cwd=tmp_path, env=environment, check=False)
    assert (tmp_path / "model.json").read_bytes() == b"old"


@posix
def test_two_processes_write_one_file_without_harm(tmp_path, monkeypatch):
    path, replace = tmp_path / "model.json", os.replace

    def meanwhile(*names):
        monkeypatch.setattr(os, "replace", replace)
        write_atomically(path, b"the other")
        replace(*names)

    monkeypatch.setattr(os, "replace", meanwhile)
    write_atomically(path, b"mine")
    assert path.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["model.json"]


def test_a_write_that_fails_leaves_no_part(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(tmp_path / "model.json", b"content")
    assert os.listdir(tmp_path) == []


# Archives


def test_arrays_come_back_as_they_were_or_not_at_all(tmp_path):
    arrays = [np.asfortranarray(np.arange(6).reshape(2, 3)), np.array(["x", "yz"]), np.empty((0, 3)), np.array(3.0)]
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", *arrays)
        for found, array in zip(read_archive(tmp_path / "a.npz").values(), arrays, strict=True):
            np.testing.assert_array_equal(found, array, strict=True)
            assert found.flags.writeable
    np.savez(tmp_path / "a.npz", X=np.arange(24.0))
    content = (tmp_path / "a.npz").read_bytes()
    for byte in range(60, 330, 7):  # before, a zip file has some that are not read
        changed = bytearray(content)
        changed[byte] ^= 0x55
        (tmp_path / "a.npz").write_bytes(bytes(changed))
        with pytest.raises(ArchiveError):
            read_archive(tmp_path / "a.npz")


def test_an_archive_that_inflates_is_refused_before_it_is_inflated(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as member:
        np.lib.format.write_array_header_1_0(
            member, {"descr": "<f8", "fortran_order": False, "shape": (1 << 24,)}
        )  # fmt: skip
        for _ in range(128):
            member.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 18
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError, match=r"would inflate from [\d,]+ to 134,\d+,\d+ bytes"):
            read_archive(path, growth=200.0)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()
    assert read_archive(path, growth=2000.0)["X"].shape == (1 << 24,)


def member(shape: tuple[int, ...], content: bytes) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue() + content


@pytest.mark.parametrize("shape", [(10**12,), (5,), (-4,)])
def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path, shape):
    path = tmp_path / "lie.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", member(shape, bytes(32)))
        archive.writestr("z.npy", member((4,), bytes(32)))
    with pytest.raises(ArchiveError):
        read_archive(path)
    with pytest.raises(SourceError, match="does not hold as many numbers as it says"):  # else it would show z too
        open_arrays(path, np.ones(4))


@pytest.mark.parametrize("stated", [8, 2**31])
def test_a_directory_that_lies_about_a_member_is_refused(tmp_path, stated):
    """The directory says that a member inflates to another size than it does."""
    path = tmp_path / "lie.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", member((1000,), bytes(8000)))
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02")
    content[place + 24 : place + 28] = struct.pack("<L", stated)
    path.write_bytes(bytes(content))
    with pytest.raises(ArchiveError):
        read_archive(path)


def test_a_signed_archive_comes_back_as_it_was_and_needs_a_header(tmp_path):
    for header in (None, b"[1]", b"[" * 100000, b"\xff"):
        arrays = {} if header is None else {"header": np.frombuffer(header, dtype=np.uint8)}
        np.savez(tmp_path / "a.npz", X=np.ones(2), **arrays)
        with pytest.raises(ArchiveError):
            read_signed(tmp_path / "a.npz", 1)
    write_signed(tmp_path / "a.npz", {"format": 1, "deep": [1.5, None]}, {"X": np.eye(2)})
    header, arrays = read_signed(tmp_path / "a.npz", 1)
    assert header == {"format": 1, "deep": [1.5, None]}
    np.testing.assert_array_equal(arrays["X"], np.eye(2))
    with pytest.raises(ArchiveError, match="format 1 of another edition, and this one reads 2"):
        read_signed(tmp_path / "a.npz", 2)


def test_a_file_that_changed_or_has_gone_is_named(tmp_path):
    path = tmp_path / "rows.npy"
    path.write_bytes(b"12345678")
    state = FileState.of(path)
    assert state.difference() is None
    status = path.stat()
    (tmp_path / "new").write_bytes(b"87654321")
    os.replace(tmp_path / "new", path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # the same size and time, another file
    assert "has changed since it was opened" in state.difference()
    path.unlink()
    assert "has gone since it was opened" in state.difference()
