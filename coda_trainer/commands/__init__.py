"""The commands of ``coda``, one file each: their arguments, their help, what they do.

A command's class is read to build ``coda --help``, so its module imports nothing heavy at the
top; torch, MuJoCo and the rest are imported in ``run()``.
"""
