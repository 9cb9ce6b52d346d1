"""The records of a study in one compressed file: all that a report needs, without weights and replay buffers."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from acc_rl.core.errors import AccError
from acc_rl.store import files, records

SUFFIX = ".tar.gz"
LARGEST = 4 << 30
"""bytes of all records together"""
MOST = 50_000
"""files of all runs together, seven for each"""
CHUNK = 1 << 16


def pack(folder: Path, file: Path) -> list[str]:
    """Write the records of all runs in ``folder``, and say which these are. The same records give the same bytes."""
    if not file.name.endswith(SUFFIX):
        raise AccError(f"{file}: the name must end in {SUFFIX}")
    runs = runs_in(folder)
    paths = [folder / records.STUDY, *(run / name for run in runs for name in records.RECORDS)]
    paths = [path for path in paths if path.exists()]
    size = sum(path.stat().st_size + 2 * tarfile.BLOCKSIZE for path in paths) + tarfile.RECORDSIZE
    if size > LARGEST or len(paths) > MOST:  # before an archive is written that nothing reads
        raise AccError(
            f"{folder}: {len(paths)} files of {size} bytes; an archive has at most {MOST} files and {LARGEST} bytes"
        )
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in paths:
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            data = files.read_plain(path, records.LARGEST_ROWS)
            member.size = len(data)
            try:
                archive.addfile(member, io.BytesIO(data))
            except ValueError as error:
                raise AccError(f"{path.parent}: an archive cannot hold a folder of that name: {error}") from None
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_whole(file, gzip.compress(content.getvalue(), mtime=0))
    return [run.name for run in runs]


def runs_in(folder: Path) -> list[Path]:
    """The folders of its runs; an error if there is none"""
    runs = sorted(each.parent for each in folder.glob(f"*/{records.SPEC}"))
    if not runs:
        raise files.RecordError(f"{folder}: holds no run (a run's folder has a {records.SPEC})")
    return runs


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """``path`` itself, or a folder with what it holds if it is a file that ``pack`` wrote"""
    if not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside) / path.name.removesuffix(SUFFIX)
        folder.mkdir()
        try:
            with path.open("rb") as file:
                _write_records(_Unzipped(file), folder)
        except (tarfile.TarError, OSError, zlib.error) as error:
            raise files.DamagedFile(f"{path}: is not a whole archive of records: {error}") from None
        yield folder


class _Unzipped:
    """What comes out of a gzip file, in pieces: little of it is held, and after ``LARGEST`` bytes it is refused."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.left = file, LARGEST
        self.stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)

    def pieces(self, size: int) -> Iterator[bytes]:
        """The next ``size`` bytes"""
        while size:
            if self.stream.eof:
                raise tarfile.TarError("it ends too early")
            piece = self._some(min(size, CHUNK))
            size -= len(piece)
            yield piece

    def read(self, size: int) -> bytes:
        return b"".join(self.pieces(size))

    def _some(self, most: int) -> bytes:
        compressed = self.stream.unconsumed_tail or self.file.read(CHUNK)
        piece = self.stream.decompress(compressed, most)
        self.left -= len(piece)
        if self.left < 0:
            raise tarfile.TarError(f"it unpacks to more than {LARGEST} bytes")
        if not compressed and not piece:
            raise tarfile.TarError("it is cut off")
        return piece

    def require_end(self) -> None:
        """Zeros up to the end of the stream, where its checksum is compared, and nothing after it"""
        clean, least = True, self.left - tarfile.RECORDSIZE
        while clean and not self.stream.eof:
            clean = not any(self._some(tarfile.RECORDSIZE)) and self.left >= least
        if not clean or self.stream.unused_data or self.file.read(1):
            raise tarfile.TarError("data follows its end")


def _write_records(content: _Unzipped, folder: Path) -> None:
    """The records in it, as ``pack`` writes them: regular files with one header each. Anything else is refused."""
    written: set[str] = set()
    while any(header := content.read(tarfile.BLOCKSIZE)):
        member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        if member.type != tarfile.REGTYPE or member.size < 0 or not _is_record(member.name) or member.name in written:
            raise tarfile.TarError(f"{member.name!r} is not a record of a run, or occurs twice")
        written.add(member.name)
        if len(written) > MOST:
            raise tarfile.TarError(f"it has more than {MOST} files")
        target = folder / member.name
        target.parent.mkdir(exist_ok=True)
        with target.open("xb") as file:
            file.writelines(content.pieces(member.size))
        content.read(-member.size % tarfile.BLOCKSIZE)
    content.require_end()


def _is_record(name: str) -> bool:
    """No other names, no folders within folders"""
    run, _, file = name.rpartition("/")
    return name == records.STUDY or (run not in ("", ".", "..") and "/" not in run and file in records.RECORDS)
