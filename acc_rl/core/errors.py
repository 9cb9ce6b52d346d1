"""The errors that are the user's to mend. The command line prints them as one line; a bug keeps its traceback."""


class AccError(ValueError):
    """Base of all errors that this package raises on purpose."""


class SettingError(AccError, AssertionError):
    """A setting that cannot be; an AssertionError too, as users of SB3 expect."""
