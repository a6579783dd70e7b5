"""What all benches share: peers, rounds, verdicts, tables and pictures."""
