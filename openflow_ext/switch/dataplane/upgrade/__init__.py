"""Upgrade in place: the maps of another version are adopted, moved, or refused before anything changes."""
