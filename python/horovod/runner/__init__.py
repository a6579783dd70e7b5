"""Starting jobs. `horovodrun` is a program; this package is its face in Python."""
