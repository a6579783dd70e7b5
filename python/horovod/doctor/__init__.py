"""What `horovodrun --doctor` asks: does everything that a job needs hold on these hosts?

Three steps, each of its own: `collect` gathers facts on a host; `host` and `hosts` are pure, and
say what follows from facts; `command` starts a job with one rank a host for the facts and, where
more than one host is fit for it, another one that measures the ways between them (`wire`).
"""
