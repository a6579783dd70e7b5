"""Common parts of all benchmarks: peers, rounds, verdicts, tables and pictures."""
