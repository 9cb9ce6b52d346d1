"""The ACC rule, what it watches, and its theory: numpy and scipy.special alone."""
