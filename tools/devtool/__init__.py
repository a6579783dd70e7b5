"""What `./dev` is made of. Standard library only: it runs before anything is installed.

paths.py    where things are
process.py  running a command with a log, a deadline and one line on the screen
setup.py    Debian packages, the virtual environment, the builds
suites.py   the tests: what belongs to a suite, how its cases are counted
main.py     the command line
"""
