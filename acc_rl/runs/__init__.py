"""One run is one folder."""
