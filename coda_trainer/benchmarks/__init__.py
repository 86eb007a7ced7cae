"""Benchmarks: tables and figures as lists of runs, one file each; docs/benchmarks.md explains."""
