"""Helpers that scripts import by their earlier names."""
