"""Adapters, one file per chip family. Installed as torch_fl.backends; found by scanning this package."""
