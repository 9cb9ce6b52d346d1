import json

import pytest

from acc_rl.runs import records


def test_rows_come_back(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"step": 1, "x": 0.1}, {"step": 2, "names": ["a", "ü"]}]
    for row in rows:
        records.append(path, row)
    assert records.read(path) == rows
    assert records.read(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_torn_last_line_is_passed_over(tmp_path, cut):
    path = tmp_path / "rows.jsonl"
    for step in (1, 2):
        records.append(path, {"step": step})
    path.write_bytes(path.read_bytes()[:-cut])
    assert records.read(path) in ([{"step": 1}], [{"step": 1}, {"step": 2}])
    assert len(records.read(path)) == (2 if cut == 1 else 1)  # only the line end is missing


def test_damage_elsewhere_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(records.RecordError, match=r"rows\.jsonl: line 2 is no JSON"):
        records.read(path)
    path.write_text("[1]\n")
    with pytest.raises(records.RecordError, match="line 1 is no JSON object"):
        records.read(path)


def test_what_is_no_number_becomes_null(tmp_path):
    path = tmp_path / "rows.jsonl"
    records.append(path, {"a": float("nan"), "b": [float("inf"), 1.0], "c": {"d": -float("inf")}})
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
