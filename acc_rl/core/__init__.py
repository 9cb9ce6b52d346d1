"""The ACC rule and what it watches, in numpy alone."""
