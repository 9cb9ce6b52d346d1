"""A trained policy at work: load, play, export, diagnose."""
