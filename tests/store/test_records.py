import errno
import json
import os

import pytest

from acc_rl.store import records


def test_rows_come_back(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"step": 1, "x": 0.1}, {"step": 2, "names": ["a", "ü"]}]
    for row in rows:
        records.Rows(path).append(row)
    assert records.read(path) == rows
    assert records.read(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_torn_last_line_is_passed_over(tmp_path, cut):
    path = tmp_path / "rows.jsonl"
    for step in (1, 2):
        records.Rows(path).append({"step": step})
    path.write_bytes(path.read_bytes()[:-cut])
    assert records.read(path) in ([{"step": 1}], [{"step": 1}, {"step": 2}])
    assert len(records.read(path)) == (2 if cut == 1 else 1)  # only the line end is missing


def test_damage_elsewhere_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(records.RecordError, match=r"rows\.jsonl: line 2 is not valid JSON"):
        records.read(path)
    path.write_text("[1]\n")
    with pytest.raises(records.RecordError, match="line 1 is not a JSON object"):
        records.read(path)


def test_what_is_no_number_becomes_null(tmp_path):
    path = tmp_path / "rows.jsonl"
    records.Rows(path).append({"a": float("nan"), "b": [float("inf"), 1.0], "c": {"d": -float("inf")}})
    assert json.loads(path.read_text()) == {"a": None, "b": [None, 1.0], "c": {"d": None}}


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "file.json"
    records.write_json(path, {"a": 1})
    records.write_json(path, {"a": 2})
    assert records.read_json(path) == {"a": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["file.json"]
    for content in ("{", "[]"):
        path.write_text(content)
        with pytest.raises(records.RecordError, match=r"file\.json"):
            records.read_json(path)
    with pytest.raises(records.RecordError, match="No such file"):
        records.read_json(tmp_path / "none.json")


def test_rows_written_later_are_cut_off(tmp_path):
    rows = records.Rows(tmp_path / "rows.jsonl")
    rows.append({"step": 1})
    told = rows.fingerprint()
    rows.append({"step": 2})
    rows.path.write_bytes(rows.path.read_bytes()[:-3])
    again = records.Rows(rows.path)
    again.cut(told)
    again.append({"step": 3})
    assert records.read(rows.path) == [{"step": 1}, {"step": 3}]


def test_rows_that_were_changed_are_told(tmp_path):
    rows = records.Rows(tmp_path / "rows.jsonl")
    rows.append({"step": 1})
    told = rows.fingerprint()
    rows.path.write_bytes(b'{"step": 7}\n')
    with pytest.warns(UserWarning, match=r"rows\.jsonl: its rows are no longer those"):
        rows.cut(told)


def test_rows_wait_for_a_disk_that_is_full(tmp_path, monkeypatch):
    rows, original, room = records.Rows(tmp_path / "rows.jsonl"), os.pwrite, [20]

    def pwrite(descriptor, content, at):
        if room[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = original(descriptor, content[: room[0]], at)  # a part, as a disk that is nearly full takes it
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", pwrite)
    expected = [{"step": step} for step in range(10)]
    rows.append(expected[0])
    with pytest.warns(UserWarning, match="No space left on device; its rows wait"):
        rows.append(expected[1])
    for row in expected[2:9]:
        rows.append(row)  # no further warning
    assert records.read(rows.path) == expected[:1]
    room[0] = 10**6
    rows.append(expected[9])
    assert records.read(rows.path) == expected
    rows.flush(sync=True)
    assert rows.fingerprint() == records.Rows(rows.path).fingerprint()


def test_rows_that_were_truncated_are_an_error_and_get_no_hole(tmp_path):
    rows = records.Rows(tmp_path / "rows.jsonl")
    for step in range(5):
        rows.append({"step": step})
    for damage in (lambda: os.truncate(rows.path, 12), rows.path.unlink):
        damage()
        for act in (lambda: rows.append({"step": 5}), lambda: rows.flush(sync=True)):
            with pytest.raises(records.RecordError, match=r"rows\.jsonl: has \d+ bytes, but 60 were written"):
                act()
        assert b"\0" not in rows.path.read_bytes()


NOT_PLAIN = {
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "dangling link": lambda path: path.symlink_to(path.with_name("nothing")),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "pipe": os.mkfifo,
    "endless": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
}


@pytest.mark.parametrize("make", NOT_PLAIN.values(), ids=NOT_PLAIN)
@pytest.mark.parametrize("read", [records.read, records.read_json, records.Rows])
def test_records_are_read_from_plain_files_only(tmp_path, make, read):
    make(tmp_path / "a.json")
    with pytest.raises(records.RecordError, match=r"a\.json: (is a link|is no plain file|has \d+ bytes, not at most)"):
        read(tmp_path / "a.json")
    assert not (tmp_path / "nothing").exists()


def test_rows_are_not_written_into_what_became_a_link(tmp_path):
    rows = records.Rows(tmp_path / "rows.jsonl")
    (tmp_path / "other").touch()
    rows.path.symlink_to(tmp_path / "other")
    with pytest.warns(UserWarning, match=r"rows\.jsonl: .*; its rows wait"):
        rows.append({"step": 1})
    assert (tmp_path / "other").read_bytes() == b""


def test_deep_json_is_one_line(tmp_path):
    (tmp_path / "a.json").write_text("[" * 10**5 + "\n")
    for read in (records.read, records.read_json):
        with pytest.raises(records.RecordError, match=r"a\.json: .*is not valid JSON"):
            read(tmp_path / "a.json")
