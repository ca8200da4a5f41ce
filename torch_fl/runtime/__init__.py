"""Devices, memory, streams and random state."""
