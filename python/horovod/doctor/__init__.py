"""`horovodrun --doctor`: checks whether these hosts meet all requirements of a job.

Three independent steps: `collect` gathers facts on a host; `host` and `hosts` are pure and derive
findings from facts; `command` starts a job with one rank per host for the facts and, with at least
two usable hosts, another job that measures the connections between them (`wire`).
"""
