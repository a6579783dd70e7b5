"""The parts of `./dev`. Standard library only: it runs before anything is installed.

paths.py    paths of the tree
process.py  runs a command with a log, a deadline and one line on the screen
setup.py    Debian packages, the virtual environment, the builds for it
builds.py   all builds by name
wheel.py    portable wheels: what is built, and the commands for it
toolchain.py, libraries.py, binaries.py, bill.py  parts of that
suites.py   the test suites
counts.py   how their cases are counted
main.py     the command line
"""
