"""Modules that scripts import by their earlier names."""
