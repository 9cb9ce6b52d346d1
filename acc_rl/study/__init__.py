"""A study is many runs: tasks x algorithms x seeds, in one folder."""
