"""Checkpoints on disk: written whole or not at all, checked when they are read, the last two kept.

``checkpoints/step-000000010000/`` holds a manifest, the state as JSON and its tensors as safetensors. The replay buffer
lies beside them in ``checkpoints/replay/``, in segments that are written once: a checkpoint costs what is new.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acc_rl.algos.buffers import SharedReplayBuffer
from acc_rl.core.observations import Array
from acc_rl.store import files, tree
from acc_rl.store.records import DamagedFile, RecordError, read_json

SCHEMA = 1
MANIFEST, STATE, TENSORS, REPLAY = "manifest.json", "state.json", "state.safetensors", "replay"
KEPT = 2
ROWS_PER_SEGMENT = 50_000
NAME = re.compile(r"step-\d{12}\+*")
"""a plus for each time that the same step was written again"""
SEGMENT_NAME = re.compile(r"\d{12}-\d{12}\.safetensors")


class CheckpointError(RecordError):
    """No checkpoint that can be used."""


@dataclass(frozen=True)
class Segment:
    """Transitions ``first`` ... ``last - 1`` of the replay buffer, and how to know the file again"""

    file: str
    first: int
    last: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Checkpoint:
    name: str
    step: int
    manifest: Mapping[str, Any]
    state: Any
    segments: list[tuple[Segment, Mapping[str, Array]]]
    """what there is of the replay buffer; without gaps up to the newest transition"""
    whole: bool
    """all of the replay buffer could be read"""

    def fill(self, buffer: SharedReplayBuffer) -> None:
        kept = self.state["replay"]
        first = kept["first"] if self.whole else self.segments[0][0].first if self.segments else kept["added"]
        parts = [(segment.first, content) for segment, content in self.segments]
        buffer.load(kept["added"], first, parts, kept["newest"])


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: dict[str, list[Segment]] = {}
        """name of each checkpoint that is kept, oldest first, and the segments it needs"""

    # --- writing ---

    def write(self, step: int, state: Mapping[str, Any], buffer: SharedReplayBuffer, about: Mapping[str, Any]) -> None:
        """One more checkpoint; an OSError leaves those that were there whole."""
        self.refuse_links()
        replay, name = self.folder / REPLAY, f"step-{step:012d}"
        replay.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder, replay):
            files.remove_parts(folder)
        segments = self._write_segments(buffer)
        newest = {"added": buffer.added, "first": buffer.first, "newest": buffer.newest()}
        text, tensors = tree.pack({**state, "replay": newest})
        aside = self.folder / (files.PART + name)
        aside.mkdir()
        sums = {STATE: files.write_flushed(aside / STATE, text), TENSORS: files.write_flushed(aside / TENSORS, tensors)}
        content = {"schema": SCHEMA, "step": step, **about, "files": sums, "segments": [asdict(s) for s in segments]}
        files.write_flushed(aside / MANIFEST, _sealed(content))
        while (self.folder / name).exists():  # damaged, or without what came at the end
            name += "+"
        files.commit_folder(aside, self.folder / name)
        self._kept[name] = segments
        try:
            self._remove_old()
        except OSError as error:
            warnings.warn(f"old checkpoints in {self.folder} could not be removed: {error}", stacklevel=2)

    def _write_segments(self, buffer: SharedReplayBuffer) -> list[Segment]:
        """What the checkpoint needs: the old segments that still hold something, and new ones for what is new"""
        written = self._kept[list(self._kept)[-1]] if self._kept else []
        segments = [segment for segment in written if segment.last > buffer.oldest]
        first = max(segments[-1].last if segments else 0, buffer.oldest)
        per_segment = max(ROWS_PER_SEGMENT // buffer.n_envs, 1)
        while first < buffer.added:
            last = min(first + per_segment, buffer.added)
            name = f"{first:012d}-{last:012d}.safetensors"
            content = tree.pack_arrays(buffer.transitions(first, last))
            segments.append(Segment(name, first, last, **files.write_whole(self.folder / REPLAY / name, content)))
            first = last
        return segments

    def _remove_old(self) -> None:
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        for path in self.folder.iterdir():
            if NAME.fullmatch(path.name) and path.name not in self._kept:
                files.remove_folder(path)
        needed = {segment.file for segments in self._kept.values() for segment in segments}
        for path in (self.folder / REPLAY).iterdir():
            if SEGMENT_NAME.fullmatch(path.name) and path.name not in needed:
                path.unlink()

    # --- reading ---

    def read(self) -> Checkpoint | None:
        """The newest that is whole; None if there never was one.

        A damaged one is named in a warning and the one before is taken. If none is whole but for transitions of the
        replay buffer, the newest is taken with those that could be read.
        """
        self.refuse_links()
        names = self._names()
        partial: Checkpoint | None = None
        for name in names:
            try:
                found = self._read_one(name)
            except RecordError as error:
                warnings.warn(f"a checkpoint is damaged and left out: {error}", stacklevel=2)
                continue
            if found.whole:
                self._remember(found)
                return found
            partial = partial or found
        if partial is not None:
            left = sum(segment.last - segment.first for segment, _ in partial.segments)
            warnings.warn(
                f"no checkpoint in {self.folder} is whole: resuming from step {partial.step} with the newest {left} "
                "transitions of the replay buffer; the result will differ from that of an uninterrupted run",
                stacklevel=2,
            )
            self._remember(partial)
            return partial
        if names:
            raise CheckpointError(f"{self.folder}: none of its {len(names)} checkpoints can be read")
        return None

    def manifests(self) -> dict[Path, dict[str, Any]]:
        """Those of all checkpoints whose manifest is not damaged"""
        self.refuse_links()
        found = {}
        for path in map(self.folder.joinpath, self._names()):
            with suppress(RecordError):
                found[path] = read_manifest(path)
        return found

    def refuse_links(self) -> None:
        """Old checkpoints are removed: behind a link these would be somebody else's files."""
        for path in (self.folder, self.folder / REPLAY, *(self.folder / name for name in self._names())):
            if path.is_symlink():
                raise CheckpointError(
                    f"{path}: is a link, but checkpoints are kept in directories of their own: put the directory "
                    f"{os.readlink(path)} in its place, or use another --out (which may be a link)"
                )

    def _names(self) -> list[str]:
        """Names of all checkpoints, newest first"""
        there = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted((path.name for path in there if NAME.fullmatch(path.name)), reverse=True)

    def _remember(self, found: Checkpoint) -> None:
        self._kept = {found.name: [segment for segment, _ in found.segments]}

    def _read_one(self, name: str) -> Checkpoint:
        folder = self.folder / name
        manifest = read_manifest(folder)
        if name.rstrip("+") != f"step-{manifest['step']:012d}":
            raise DamagedFile(f"{folder}: its manifest is that of step {manifest['step']}")
        content = {file: files.read_checked(folder / file, manifest["files"][file]) for file in (STATE, TENSORS)}
        try:
            state = tree.unpack(content[STATE], content[TENSORS])
            added = int(state["replay"]["added"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFile(f"{folder}: {error}") from None
        segments, whole = self._read_segments([_segment(folder, each) for each in manifest["segments"]], added)
        return Checkpoint(name, manifest["step"], manifest, state, segments, whole)

    def _read_segments(
        self, segments: list[Segment], added: int
    ) -> tuple[list[tuple[Segment, Mapping[str, Array]]], bool]:
        """From the newest back to the first that is damaged or missing"""
        found: list[tuple[Segment, Mapping[str, Array]]] = []
        expected = added
        for segment in reversed(segments):
            path = self.folder / REPLAY / segment.file
            try:
                if segment.last != expected:
                    raise DamagedFile(f"{path}: ends at transition {segment.last}, not {expected}")
                found.append((segment, tree.unpack_arrays(files.read_checked(path, asdict(segment)))))
            except ValueError as error:
                warnings.warn(f"a part of the replay buffer is damaged: {error}", stacklevel=4)
                return found[::-1], False
            expected = segment.first
        return found[::-1], True


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    content = read_json(path)
    if content.get("schema") != SCHEMA:
        raise DamagedFile(f"{path}: schema is {content.get('schema')!r}, not {SCHEMA}")
    seal = content.pop("sha256", None)
    if seal != _seal(content):
        raise DamagedFile(f"{path}: its content has changed (SHA-256 differs)")
    well = isinstance(content.get("step"), int) and isinstance(content.get("segments"), list)
    sums = content.get("files")
    if not well or not isinstance(sums, dict) or not all(isinstance(sums.get(name), dict) for name in (STATE, TENSORS)):
        raise DamagedFile(f"{path}: step, files or segments are missing")
    return content


def _segment(folder: Path, content: Any) -> Segment:
    try:
        segment = Segment(**content)
        good = SEGMENT_NAME.fullmatch(segment.file) and 0 <= segment.first < segment.last
    except TypeError:
        good = False
    if not good:
        raise DamagedFile(f"{folder / MANIFEST}: {content!r} names no segment of the replay buffer")
    return segment


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sealed(content: Mapping[str, Any]) -> bytes:
    content = json.loads(json.dumps(content))
    return (json.dumps({**content, "sha256": _seal(content)}, indent=1) + "\n").encode()
