"""The records of a study in one compressed file: all that a report needs, without weights and replay buffers."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from acc_rl.store import files, records

SUFFIX = ".tar.gz"
LARGEST = 1 << 30
"""bytes of all records together"""


def pack(folder: Path, file: Path) -> list[str]:
    """Write the records of all runs in ``folder``, and say which these are. The same records give the same bytes."""
    if not file.name.endswith(SUFFIX):
        raise ValueError(f"{file}: the name must end in {SUFFIX}")
    runs = sorted(each.parent for each in folder.glob(f"*/{records.SPEC}"))
    if not runs:
        raise files.RecordError(f"{folder}: holds no run (a run's folder has a {records.SPEC})")
    paths = [folder / records.STUDY, *(run / name for run in runs for name in records.RECORDS)]
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in filter(Path.exists, paths):
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            data = files.read_plain(path, LARGEST)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_whole(file, gzip.compress(content.getvalue(), mtime=0))
    return [run.name for run in runs]


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
            with tarfile.open(path, "r:gz") as archive:
                _write(archive, folder)
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise files.DamagedFile(f"{path}: is no whole archive of records: {error}") from None
        yield folder


def _write(archive: tarfile.TarFile, folder: Path) -> None:
    """The records in it. Nothing else is written: no other names, no links, no folders within folders."""
    left = LARGEST
    for member in archive:
        parts = PurePosixPath(member.name).parts
        inside = not member.name.startswith("/") and ".." not in parts
        known = parts == (records.STUDY,) or (inside and len(parts) == 2 and parts[1] in records.RECORDS)
        data = archive.extractfile(member) if known and member.isreg() else None
        if data is None:
            raise tarfile.TarError(f"{member.name!r} is no record")
        left -= member.size
        if left < 0:
            raise tarfile.TarError(f"its records have more than {LARGEST} bytes")
        target = folder.joinpath(*parts)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data.read())
