"""A storm: thousands of tasks and schedules under a seeded sequence of faults, compared with a book of its own.

`make chaos SEED=7` runs it (`__main__.py`). `plan.py` draws from the seed what clients ask and which part fails when.
`stage.py` starts the servers and has them fail, `parts.py` the workers and the local stack. `clients.py` asks.
`book.py` keeps what was answered, and what handlers and receivers saw. `verdict.py` compares all of it with the ledger
at the end, `emptied.py` what is left after a purge, and `picture.py` draws the lateness.
"""
