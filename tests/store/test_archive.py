"""The records of a study in one file: nothing of them is lost, nothing else comes out."""

import gzip
import io
import tarfile
import tracemalloc

import pytest

from acc_rl.commands.main import main
from acc_rl.report.load import load
from acc_rl.store import archive
from acc_rl.store.archive import pack, unpacked
from acc_rl.store.records import RECORDS, SPEC, DamagedFile


def contents(folder):
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_the_records_come_back_as_they_were(study, tmp_path):
    names = pack(study, tmp_path / "small.tar.gz")
    assert names == sorted(path.parent.name for path in study.glob("*/spec.json"))
    with unpacked(tmp_path / "small.tar.gz") as folder:
        assert folder.name == "small"
        assert contents(folder) == contents(study)
        assert [run.name for run in load(folder).runs] == [run.name for run in load(study).runs]
    assert not folder.exists()


def test_the_same_records_give_the_same_bytes(study, tmp_path):
    for name in ("a.tar.gz", "b.tar.gz"):
        pack(study, tmp_path / name)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_only_records_are_packed(study, tmp_path):
    folder = tmp_path / "copied"
    with tarfile.open(fileobj=io.BytesIO(_packed(study, tmp_path))) as archive:
        archive.extractall(folder, filter="data")
    run = next(folder.glob("*/spec.json")).parent
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "state.safetensors").write_bytes(b"large")
    (run / "policy.safetensors").write_bytes(b"large")
    pack(folder, tmp_path / "again.tar.gz")
    with tarfile.open(tmp_path / "again.tar.gz") as archive:
        found = {member.name.split("/")[-1] for member in archive}
    assert {"study.json", "spec.json", "evaluations.jsonl"} < found <= {"study.json", *RECORDS}


def test_a_report_is_the_same_from_the_file(study, tmp_path):
    pack(study, tmp_path / "small.tar.gz")
    for source, out in ((study, "folder"), (tmp_path / "small.tar.gz", "file")):
        assert main(["report", str(source), "--out", str(tmp_path / out)]) == 0
    first, second = ((tmp_path / out / "index.html").read_text() for out in ("folder", "file"))
    assert first == second


@pytest.mark.parametrize(
    "name", ["../evil", "/spec.json", "//spec.json", "../spec.json", "a/b/spec.json", "a/policy.py", "spec.json"]
)
def test_other_names_are_refused(tmp_path, name):
    _write(tmp_path / "x.tar.gz", tarfile.TarInfo(name), b"{}")
    _refused(tmp_path / "x.tar.gz")
    assert not (tmp_path.parent / "evil").exists()


def test_a_name_that_does_not_fit_is_an_error(tmp_path):
    folder = tmp_path / "study" / ("x" * 160)
    folder.mkdir(parents=True)
    (folder / SPEC).write_text("{}")
    with pytest.raises(ValueError, match="an archive cannot hold a folder of that name"):
        pack(folder.parent, tmp_path / "a.tar.gz")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_what_is_no_plain_file_is_refused(tmp_path, kind):
    member = tarfile.TarInfo("a/spec.json")
    member.type, member.linkname = kind, "/etc/passwd"
    _write(tmp_path / "x.tar.gz", member, b"")
    _refused(tmp_path / "x.tar.gz")


def test_a_damaged_file_is_refused(study, tmp_path):
    whole = _packed(study, tmp_path)
    for damaged in (b"", b"no archive", whole[: len(whole) // 2], whole[:500] + b"\0" * 50 + whole[550:]):
        (tmp_path / "x.tar.gz").write_bytes(damaged)
        _refused(tmp_path / "x.tar.gz")


def test_too_much_is_refused(study, tmp_path, monkeypatch):
    whole = _packed(study, tmp_path)
    monkeypatch.setattr("acc_rl.store.archive.LARGEST", 1000)
    (tmp_path / "x.tar.gz").write_bytes(whole)
    _refused(tmp_path / "x.tar.gz")


# --- archives that are small and take for ever, or all memory ---


def header(name, size, kind=tarfile.REGTYPE):
    """A block with any size, also one that tarfile would not write"""
    member = tarfile.TarInfo(name)
    member.type = kind
    block = bytearray(member.tobuf(tarfile.USTAR_FORMAT))
    block[124:136] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


END = bytes(2 * tarfile.BLOCKSIZE)
SMALL = {
    "negative size": header("a/spec.json", -512) + END,
    "negative size that leads back to its header": header("a/spec.json", 0) + header("b/spec.json", -512) + END,
    "long name": header("././@LongLink", 1 << 33, tarfile.GNUTYPE_LONGNAME) + b"a" * 5000,
    "long link": header("././@LongLink", 1 << 33, tarfile.GNUTYPE_LONGLINK) + b"a" * 5000,
    "extended header": header("PaxHeaders/a", 1 << 33, tarfile.XHDTYPE) + b"a" * 5000,
    "global header": header("PaxHeaders/a", 1 << 33, tarfile.XGLTYPE) + b"a" * 5000,
    "sparse": header("a/spec.json", 0, tarfile.GNUTYPE_SPARSE) + END,
    "huge size": header("a/spec.json", 1 << 62) + b"a" * 5000,
    "twice the same": 2 * header("a/spec.json", 0) + END,
    "cut off in a file": header("a/spec.json", 5000) + b"{}",
    "no end": header("a/spec.json", 0),
    "something after the end": header("a/spec.json", 0) + END + b"x" * 100,
    "zeros for ever": header("a/spec.json", 0) + bytes(10**6),
}


@pytest.mark.parametrize("content", SMALL.values(), ids=SMALL)
def test_headers_that_lie_are_refused(tmp_path, content):
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(content))
    _refused(tmp_path / "x.tar.gz")


def test_such_a_header_would_have_been_read_as_any_other(tmp_path):
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(header("a/spec.json", 2) + b"{}".ljust(512, b"\0") + END))
    with unpacked(tmp_path / "x.tar.gz") as folder:
        assert contents(folder) == {"a/spec.json": b"{}"}


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_what_comes_out_is_counted_and_not_held(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(archive, "LARGEST", 1 << 26)
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(header("a/spec.json", 1 << 27, kind) + bytes(1 << 27)))
    tracemalloc.start()
    _refused(tmp_path / "x.tar.gz")
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held < 1 << 24


@pytest.mark.parametrize("limit", ["LARGEST", "MOST"])
def test_what_could_not_be_read_back_is_not_written(study, tmp_path, monkeypatch, limit):
    before = _packed(study, tmp_path)
    monkeypatch.setattr(archive, limit, 7)
    with pytest.raises(ValueError, match="an archive has at most"):
        pack(study, tmp_path / "whole.tar.gz")
    assert (tmp_path / "whole.tar.gz").read_bytes() == before


def test_members_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MOST", 100)
    for members in (100, 101):
        content = b"".join(header(f"run{i}/spec.json", 0) for i in range(members)) + END
        (tmp_path / f"{members}.tar.gz").write_bytes(gzip.compress(content))
    with unpacked(tmp_path / "100.tar.gz") as folder:
        assert len(contents(folder)) == 100
    _refused(tmp_path / "101.tar.gz", "more than 100 files")


def test_streams_are_not_joined(tmp_path):
    whole = gzip.compress(header("a/spec.json", 0) + END)
    (tmp_path / "x.tar.gz").write_bytes(whole + 1000 * gzip.compress(b""))
    _refused(tmp_path / "x.tar.gz", "data follows its end")


def test_the_command_tells_what_it_wrote_and_what_is_wrong(study, tmp_path, capsys):
    assert main(["study", "pack", str(study), str(tmp_path / "small.tar.gz")]) == 0
    assert "records of 23 runs, 22 of them finished" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "small.tar.gz"), "--watch"]) == 2
    assert "leave --watch out" in capsys.readouterr().err
    assert main(["study", "pack", str(study), str(tmp_path / "small.zip")]) == 2
    assert "must end in .tar.gz" in capsys.readouterr().err
    assert main(["study", "pack", str(tmp_path), str(tmp_path / "b.tar.gz")]) == 2
    assert "holds no run" in capsys.readouterr().err


def _packed(study, tmp_path):
    pack(study, tmp_path / "whole.tar.gz")
    return (tmp_path / "whole.tar.gz").read_bytes()


def _write(path, member, data):
    member.size = len(data)
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(member, io.BytesIO(data))


def _refused(path, told=""):
    with pytest.raises(DamagedFile, match=f"{path.name}.*{told}") as error, unpacked(path):
        pass
    assert "\n" not in str(error.value)
