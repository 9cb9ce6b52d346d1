"""What lies on disk: files, records, checkpoints, archives, locks."""
