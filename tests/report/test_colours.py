import numpy as np
import pytest

from acc_rl.report.colours import KNOWN, PALETTE, looks


def test_looks_are_fixed_or_free():
    found = looks(["sac", "mine", "acc", "yours"])
    assert found["acc"] == KNOWN["acc"]
    assert len({look.colour for look in found.values()}) == 4
    assert looks(["yours", "mine", "acc", "sac"]) == found


def test_all_can_be_told_apart_in_grey():
    assert len({look.in_grey for look in KNOWN.values()}) == len(KNOWN)
    for labels in ([f"algorithm {i}" for i in range(40)], [*KNOWN, *(f"{label} (other)" for label in KNOWN)]):
        found = looks(labels)
        assert len({look.in_grey for look in found.values()}) == len(labels)
    few = looks(["mine", "yours", "acc", "sac", "td3", "tqc"])
    assert len({look.shape for look in few.values()}) == 6


SIGHTS = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Machado, Oliveira and Fernandes (2009), severity 1"""

SHOWN_TOGETHER = [
    ("acc", "sac", "td3"),
    ("acc", "tqc-d0", "tqc-d2", "tqc-d5"),
    ("acc", "sac", "td3", "acc-td3", "tqc-d2"),
    ("acc", "acc-sac", "sac"),
]


def linear(colour):
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("names", SHOWN_TOGETHER, ids="-".join)
@pytest.mark.parametrize("sight", SIGHTS)
def test_the_colour_blind_can_tell_them_apart(names, sight):
    colours = [lab(np.array(SIGHTS[sight]) @ linear(KNOWN[name].colour)) for name in names]
    distances = [np.linalg.norm(a - b) for i, a in enumerate(colours) for b in colours[:i]]
    assert min(distances) > 9


@pytest.mark.parametrize("colour", PALETTE)
@pytest.mark.parametrize("ground", ["#ffffff", "#14171c"])
def test_contrast(colour, ground):
    weights = [0.2126, 0.7152, 0.0722]
    dark, light = sorted([linear(colour) @ weights, linear(ground) @ weights])
    assert (light + 0.05) / (dark + 0.05) >= 3
