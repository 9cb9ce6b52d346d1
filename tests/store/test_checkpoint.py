"""Checkpoints under crashes, failing disks, damage and malice."""

import contextlib
import errno
import json
import os
import pickle
import shutil
import signal
import warnings
from collections import deque

import numpy as np
import pytest
import torch as th
from gymnasium import spaces

from acc_rl.algos.buffers import SharedReplayBuffer
from acc_rl.store import checkpoint, files, tree
from acc_rl.store.checkpoint import MANIFEST, REPLAY, STATE, TENSORS, CheckpointError, Checkpoints
from acc_rl.store.records import DamagedFile

EVERY = 20
OPERATIONS = ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir")


def make_buffer():
    box = spaces.Box(-1, 1, (2,), np.float32)
    return SharedReplayBuffer(50, box, box, "cpu")


def live(buffer, steps):
    rng = np.random.default_rng(buffer.added)
    for _ in range(steps):
        obs, next_obs = rng.normal(size=(2, 1, 2)).astype(np.float32)
        buffer.add(obs, next_obs, obs, np.ones(1), np.array([False]), [{}])


def state_at(step):
    return {"weights": th.full((3,), float(step)), "step": step}


def write(store, buffer, step):
    """The buffer as it is at ``step``, and the checkpoint of it"""
    live(buffer, step - buffer.added)
    store.write(step, state_at(step), buffer, {"seconds": 0.0})


def make_two(folder):
    """A run that has written two checkpoints (and removed one); the ring of 50 has gone round"""
    store, buffer = Checkpoints(folder), make_buffer()
    for step in (EVERY, 2 * EVERY, 3 * EVERY):
        write(store, buffer, step)
    return store, buffer


@pytest.fixture
def two(tmp_path):
    return make_two(tmp_path)


def whole(folder, steps):
    """What is read is one of ``steps``, and all of it is right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = Checkpoints(folder).read()
    assert found is not None
    assert found.step in steps
    assert th.equal(found.state["weights"], state_at(found.step)["weights"])
    expected, back = make_buffer(), make_buffer()
    for step in range(EVERY, found.step + 1, EVERY):
        live(expected, step - expected.added)
    found.fill(back)
    for name in ("observations", "actions", "rewards"):
        assert np.array_equal(getattr(back, name), getattr(expected, name))
    rows = np.arange(50)
    zeros = np.zeros(50, int)
    assert np.array_equal(back.next_of(rows, zeros)[""], expected.next_of(rows, zeros)[""])
    return found


def test_the_newest_two_are_kept_and_obsolete_segments_removed(two, tmp_path):
    store, buffer = two
    assert names(tmp_path) == ["replay", "step-000000000040", "step-000000000060"]
    assert len(names(tmp_path / REPLAY)) == 3
    write(store, buffer, 80)
    assert names(tmp_path) == ["replay", "step-000000000060", "step-000000000080"]
    # transitions 30 ... 79 are alive; the checkpoint at 60 needs 10 ... 59
    assert names(tmp_path / REPLAY) == [f"{a:012d}-{a + 20:012d}.safetensors" for a in (0, 20, 40, 60)]
    write(store, buffer, 100)
    assert len(names(tmp_path / REPLAY)) == 4
    assert whole(tmp_path, {100}).step == 100


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_writes_what_is_new(two, tmp_path):
    store, buffer = two
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / REPLAY).iterdir()}
    write(store, buffer, 80)
    for path, written in before.items():
        assert path.stat().st_mtime_ns == written


def test_more_new_transitions_than_the_ring_holds(two, tmp_path):
    store, buffer = two
    live(buffer, 200)
    store.write(260, state_at(260), buffer, {})
    found = Checkpoints(tmp_path).read()
    assert [(s.first, s.last) for s, _ in found.segments] == [(210, 260)]


def test_large_news_are_cut_into_segments(two, monkeypatch, tmp_path):
    store, buffer = two
    monkeypatch.setattr(checkpoint, "ROWS_PER_SEGMENT", 7)
    write(store, buffer, 80)
    assert len(names(tmp_path / REPLAY)) == 3 + 3
    whole(tmp_path, {80})


# --- crashes ---


def traced(monkeypatch, before):
    """Calls ``before(name, number)`` ahead of every file operation."""
    count = [0]

    def wrap(name, function):
        def call(*args, **kwargs):
            number, count[0] = count[0], count[0] + 1
            before(name, number, args)
            return function(*args, **kwargs)

        return call

    for name in OPERATIONS:
        monkeypatch.setattr(os, name, wrap(name, getattr(os, name)))
    return count


def count_operations(two):
    store, buffer = two
    with pytest.MonkeyPatch.context() as patch:
        count = traced(patch, lambda *_: None)
        write(store, buffer, 4 * EVERY)
    return count[0]


def test_kill_9_at_every_file_operation_leaves_a_readable_state(two, tmp_path):
    origin = tmp_path.with_name(tmp_path.name + "-origin")
    shutil.copytree(tmp_path, origin)
    total = count_operations(two)
    assert total > 25
    for n in range(total):
        folder = tmp_path.with_name(f"{tmp_path.name}-{n}")
        shutil.copytree(origin, folder)
        child = os.fork()
        if child == 0:
            with pytest.MonkeyPatch.context() as patch:
                store, buffer = Checkpoints(folder), make_buffer()
                store.read().fill(buffer)
                traced(patch, lambda name, k, args, n=n: os.kill(os.getpid(), signal.SIGKILL) if k == n else None)
                write(store, buffer, 4 * EVERY)
                os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        whole(folder, {3 * EVERY, 4 * EVERY})
        # and life goes on from there
        store, buffer = Checkpoints(folder), make_buffer()
        store.read().fill(buffer)
        write(store, buffer, 5 * EVERY)
        assert not [name for name in names(folder) if name.startswith(files.PART)]
        assert [n for n in names(folder / REPLAY) if n.startswith(files.PART)] == []
        shutil.rmtree(folder)


def test_flushed_before_renamed_before_the_folder_is_flushed(two, monkeypatch, tmp_path):
    store, buffer = two
    events, paths = [], {}
    original_open = os.open

    def opened(path, *args, **kwargs):
        descriptor = original_open(path, *args, **kwargs)
        paths[descriptor] = str(path)
        return descriptor

    original_fsync, original_rename = os.fsync, os.rename
    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(("fsync", paths[fd])), original_fsync(fd))[1])
    monkeypatch.setattr(
        os, "rename", lambda a, b, **k: (events.append(("rename", str(a), str(b))), original_rename(a, b, **k))[1]
    )
    write(store, buffer, 4 * EVERY)
    commits = [e for e in events if e[0] == "rename" and files.PART not in os.path.basename(e[2])]
    assert [os.path.basename(e[2]) for e in commits] == ["000000000060-000000000080.safetensors", "step-000000000080"]
    for commit in commits:
        _, aside, final = commit
        at = events.index(commit)
        flushed = [e[1] for e in events[:at] if e[0] == "fsync"]
        inside = [f"{aside}/{name}" for name in (STATE, TENSORS, MANIFEST)] if "step" in final else []
        assert {aside, *inside} <= set(flushed)
        assert ("fsync", os.path.dirname(final)) in events[at:]
    # the segment is there for good before the checkpoint that needs it
    assert events.index(("fsync", str(tmp_path / REPLAY))) < events.index(commits[1])


# --- failing disks ---


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_a_failing_disk_leaves_the_old_checkpoint_and_the_next_try_works(two, number, tmp_path):
    origin = tmp_path.with_name(tmp_path.name + "-origin")
    shutil.copytree(tmp_path, origin)
    total = count_operations(two)

    def fail(name, args):
        raise OSError(number, os.strerror(number), str(args[0]))

    for n in range(total):
        folder = tmp_path.with_name(f"{tmp_path.name}-{n}")
        shutil.copytree(origin, folder)
        store, buffer = Checkpoints(folder), make_buffer()
        store.read().fill(buffer)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced(patch, lambda name, k, args, n=n: fail(name, args) if k == n else None)
            # where old checkpoints are removed it is a warning
            with contextlib.suppress(OSError):
                write(store, buffer, 4 * EVERY)
        found = whole(folder, {3 * EVERY, 4 * EVERY})
        assert found.step <= buffer.added
        write(store, buffer, 5 * EVERY)
        whole(folder, {5 * EVERY})
        shutil.rmtree(folder)


# --- damage ---


def flip(path, rng):
    content = bytearray(path.read_bytes())
    at = int(rng.integers(len(content)))
    content[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)


def truncate(path, rng):
    os.truncate(path, int(rng.integers(path.stat().st_size)))


def delete(path, rng):
    path.unlink()


def swap(a, b):
    a_content, b_content = a.read_bytes(), b.read_bytes()
    a.write_bytes(b_content)
    b.write_bytes(a_content)


def read_with_warnings(folder):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = Checkpoints(folder).read()
    return found, " ".join(str(each.message) for each in told)


NEWEST = f"step-{3 * EVERY:012d}"
LAST_SEGMENT = f"{REPLAY}/{2 * EVERY:012d}-{3 * EVERY:012d}.safetensors"
DAMAGES = [(flip, 20), (truncate, 5), (delete, 1)]
FILES = [f"{NEWEST}/{name}" for name in (MANIFEST, STATE, TENSORS)] + [LAST_SEGMENT]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(("damage", "times"), DAMAGES)
def test_damage_is_detected_named_and_the_one_before_is_used(two, file, damage, times, tmp_path):
    rng = np.random.default_rng(0)
    good = (tmp_path / file).read_bytes()
    for _ in range(times):
        damage(tmp_path / file, rng)
        with pytest.warns(UserWarning, match="damaged") as told:
            found = Checkpoints(tmp_path).read()
        assert found.step == 2 * EVERY
        assert any(os.path.basename(file) in str(each.message) for each in told)
        (tmp_path / file).write_bytes(good)
    whole(tmp_path, {3 * EVERY})


@pytest.mark.parametrize("name", [MANIFEST, STATE, TENSORS])
def test_files_swapped_between_checkpoints_are_detected(two, name, tmp_path):
    write(*two, 4 * EVERY)
    write(*two, 5 * EVERY)
    swap(tmp_path / f"step-{4 * EVERY:012d}" / name, tmp_path / f"step-{5 * EVERY:012d}" / name)
    with pytest.warns(UserWarning, match=name.split(".")[0]), pytest.raises(CheckpointError):
        Checkpoints(tmp_path).read()


def test_swapped_segments_are_detected(two, tmp_path):
    swap(tmp_path / LAST_SEGMENT, tmp_path / LAST_SEGMENT.replace("40", "20").replace("60", "40"))
    found, told = read_with_warnings(tmp_path)
    assert LAST_SEGMENT in told
    assert not found.whole
    assert found.segments == []


def test_swapped_folders_are_detected(two, tmp_path):
    older = tmp_path / f"step-{2 * EVERY:012d}"
    (tmp_path / NEWEST).rename(tmp_path / "x")
    older.rename(tmp_path / NEWEST)
    (tmp_path / "x").rename(older)
    with pytest.warns(UserWarning, match="its manifest is that of step"), pytest.raises(CheckpointError, match="none"):
        Checkpoints(tmp_path).read()


def test_a_segment_that_both_need_costs_its_transitions_only(two, tmp_path):
    store, buffer = two
    (tmp_path / REPLAY / f"{0:012d}-{EVERY:012d}.safetensors").write_bytes(b"")
    assert "newest 40 transitions" in read_with_warnings(tmp_path)[1]
    store = Checkpoints(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = store.read()
    back = make_buffer()
    found.fill(back)
    assert (found.step, back.size()) == (3 * EVERY, 40)
    assert np.array_equal(back.actions[39], buffer.actions[9])  # the newest, number 59
    live(back, 20)
    store.write(80, state_at(80), back, {})
    again = Checkpoints(tmp_path).read()
    assert again.whole
    other = make_buffer()
    again.fill(other)
    assert other.size() == 50
    assert np.array_equal(other.actions, back.actions)


# --- malice ---


class Canary:
    def __reduce__(self):
        return os.system, (f"touch {CANARY}",)


CANARY = "/tmp/acc_rl_canary_was_run"
PICKLED = pickle.dumps(Canary())


def sealed(folder, change):
    """A manifest that is right in itself, as an attacker would write it"""
    path = folder / NEWEST / MANIFEST
    content = json.loads(path.read_text())
    content.pop("sha256")
    change(content)
    path.write_bytes(checkpoint._sealed(content))


def resealed(folder, name, content):
    (folder / NEWEST / name).write_bytes(content)
    told = files.write_flushed(folder / NEWEST / name, content)
    sealed(folder, lambda manifest: manifest["files"].update({name: told}))


def header(size, text=b"{}"):
    return size.to_bytes(8, "little") + text


def linked(path, target):
    path.unlink()
    path.symlink_to(target)


def torch_pickle(folder):
    th.save({"a": Canary()}, folder / NEWEST / TENSORS)
    resealed(folder, TENSORS, (folder / NEWEST / TENSORS).read_bytes())


HOSTILE = {
    "pickle for tensors": lambda f: resealed(f, TENSORS, PICKLED),
    "torch's pickle for tensors": torch_pickle,
    "pickle for state": lambda f: resealed(f, STATE, PICKLED),
    "pickle for manifest": lambda f: (f / NEWEST / MANIFEST).write_bytes(PICKLED),
    "pickle for a segment": lambda f: (f / LAST_SEGMENT).write_bytes(PICKLED),
    "traversal in a segment's name": lambda f: sealed(
        f, lambda m: m["segments"][-1].update(file="../../../etc/passwd")
    ),
    "absolute segment": lambda f: sealed(f, lambda m: m["segments"][-1].update(file="/etc/passwd")),
    "segment that is no mapping": lambda f: sealed(f, lambda m: m["segments"].append("x")),
    "segment with more fields": lambda f: sealed(f, lambda m: m["segments"][-1].update(run="rm")),
    "negative segment": lambda f: sealed(f, lambda m: m["segments"][-1].update(first=-5)),
    "linked segment": lambda f: linked(f / LAST_SEGMENT, "/etc/passwd"),
    "linked manifest": lambda f: linked(f / NEWEST / MANIFEST, "/etc/passwd"),
    "linked state": lambda f: linked(f / NEWEST / STATE, "/dev/zero"),
    "endless manifest": lambda f: linked(f / NEWEST / MANIFEST, "/dev/zero"),
    "pipe for a manifest": lambda f: ((f / NEWEST / MANIFEST).unlink(), os.mkfifo(f / NEWEST / MANIFEST)),
    "huge header": lambda f: resealed(f, TENSORS, header(2**62)),
    "huge tensor": lambda f: resealed(f, TENSORS, huge_tensor()),
    "deep JSON": lambda f: resealed(f, STATE, b"[" * 100_000),
    "deep manifest": lambda f: (f / NEWEST / MANIFEST).write_bytes(b"[" * 100_000),
    "another schema": lambda f: sealed(f, lambda m: m.update(schema=99)),
    "no files told": lambda f: sealed(f, lambda m: m.pop("files")),
    "sizes that are no numbers": lambda f: sealed(f, lambda m: m["files"][STATE].update(bytes="1e99")),
    "state without a buffer": lambda f: resealed(f, STATE, b"{}"),
    "tensors that are missing": lambda f: resealed(f, STATE, b'{"replay": {"added": {"$array": "nothing"}}}'),
    "another JSON": lambda f: (f / NEWEST / MANIFEST).write_bytes(b"[]"),
}


def huge_tensor():
    text = json.dumps({"x": {"dtype": "F64", "shape": [2**40, 2**20], "data_offsets": [0, 2**63]}}).encode()
    return header(len(text), text)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_and_run_no_code(two, name, tmp_path):
    HOSTILE[name](tmp_path)
    with pytest.warns(UserWarning, match="damaged") as told:
        found = Checkpoints(tmp_path).read()
    assert found.step == 2 * EVERY
    assert all("\n" not in str(each.message) for each in told)
    assert not os.path.exists(CANARY)


def test_when_all_are_damaged_it_says_so(two, tmp_path):
    for path in tmp_path.glob("step-*"):
        (path / MANIFEST).write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(CheckpointError, match="none of its 2 checkpoints"):
        Checkpoints(tmp_path).read()


# --- state as data ---


def test_a_tree_comes_back_as_it_was():
    adam = {"state": {0: {"step": th.tensor(3.0), "m": th.ones(2)}}, "groups": [{"betas": (0.9, 0.999), "lr": 1e-3}]}
    rest = {
        "a": np.arange(3, dtype=np.uint32),
        "n": 2**100,
        "none": None,
        "flag": True,
        "text": "$array",
        "nan": np.nan,
    }
    back = tree.unpack(*tree.pack({"adam": adam, **rest}))
    assert back["adam"]["groups"] == adam["groups"]
    assert list(back["adam"]["state"]) == [0]
    assert th.equal(back["adam"]["state"][0]["m"], th.ones(2))
    assert back["adam"]["state"][0]["step"].shape == ()
    assert back["a"].dtype == np.uint32
    assert back["n"] == 2**100
    assert np.isnan(back.pop("nan"))


VALUES = [
    np.float32(0.1),
    np.float64(0.1),
    np.int8(-3),
    np.bool_(True),
    np.inf,
    deque([1, (2, np.float32(3))], maxlen=5),
    deque(),
    {1, 2},
    (1, [2.5, None]),
    {"a": {1: "x"}},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_keep_their_types(value):
    (back,) = tree.unpack(*tree.pack([value]))
    assert (type(back), back, repr(back)) == (type(value), value, repr(value))


NO_SCALARS = (["O", "x"], ["<f4", "x"], ["nonsense", 1], ["<f4"], 3, ["<M8[s]", 1], ["|i1", 300])
NO_DEQUES = ([2**100, []], [-1, []], [3], [1, 2])


@pytest.mark.parametrize(
    "value", [*({"$scalar": each} for each in NO_SCALARS), *({"$deque": each} for each in NO_DEQUES), {"$set": [[]]}]
)
def test_marks_with_something_else_behind_them_are_refused(value):
    with pytest.raises(ValueError, match="its state cannot be read"):
        tree.unpack(json.dumps(value).encode(), tree.pack_arrays({}))


def test_what_is_no_data_is_not_packed():
    for value in (object(), np.array([object()]), np.array(["text"])):
        with pytest.raises(ValueError, match=r"/a/0: .* cannot be saved: use numbers"):
            tree.pack({"a": [value]})


def test_two_arrays_of_one_name_are_refused():
    with pytest.raises(ValueError, match="/a/b: two arrays of the state have this name"):
        tree.pack({"a/b": np.zeros(1), "a": {"b": np.ones(1)}})


def test_reading_refuses_what_has_grown(tmp_path):
    path = tmp_path / "a"
    told = files.write_whole(path, b"12345")
    assert files.read_checked(path, told) == b"12345"
    path.write_bytes(b"123456")
    with pytest.raises(DamagedFile, match="has 6 bytes, not at most 5"):
        files.read_checked(path, told)


# --- what is not ours ---


def elsewhere(tmp_path, link):
    """A folder with files of somebody else's, and ``link`` to it in place of what was there"""
    there = tmp_path.with_name(tmp_path.name + "-elsewhere")
    shutil.copytree(link, there) if link.is_dir() else there.mkdir()
    (there / "thesis.txt").write_text("years of work")
    shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(there)
    return there


@pytest.mark.parametrize("name", ["", REPLAY, NEWEST])
def test_links_are_refused_with_nothing_touched(two, name, tmp_path):
    store, buffer = two
    there = elsewhere(tmp_path, tmp_path / name)
    before = sorted(there.rglob("*"))
    for act in (lambda: write(store, buffer, 80), Checkpoints(tmp_path).read):
        with pytest.raises(CheckpointError, match=rf"{tmp_path / name}: is a link, .* {there} in its place"):
            act()
    assert sorted(there.rglob("*")) == before


def test_only_what_carries_our_names_is_removed(two, tmp_path):
    store, buffer = two
    foreign = [tmp_path / "notes", tmp_path / REPLAY / "notes.safetensors", tmp_path / REPLAY / "1-2.safetensors"]
    for path in foreign:
        path.write_text("mine")
    for path in (tmp_path, tmp_path / REPLAY):
        (path / f"{files.PART}-torn").write_text("ours")
    write(store, buffer, 80)
    assert all(path.exists() for path in foreign)
    assert not list(tmp_path.rglob(f"{files.PART}*"))
    assert f"{0:012d}-{20:012d}.safetensors" in names(tmp_path / REPLAY)
    write(store, buffer, 120)
    assert f"{0:012d}-{20:012d}.safetensors" not in names(tmp_path / REPLAY)
