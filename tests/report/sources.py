"""What figures and tables are made from, with fewer resamples than a page has."""

from acc_rl.report import figures
from acc_rl.report.colours import looks
from acc_rl.report.curves import scales
from acc_rl.report.load import load, together
from acc_rl.report.source import Source


def source_of(*paths, replicates=50):
    loaded = together([load(path) for path in paths])
    return Source(loaded, looks(loaded.labels), scales(loaded), replicates=replicates)


def figure_of(source, key):
    return next(figure for figure in figures.figures(source) if figure.key == key)
