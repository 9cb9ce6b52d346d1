"""Calibration without nets: settings, controllers, episodes and value errors. Numpy alone."""
