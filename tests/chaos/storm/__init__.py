"""A storm: thousands of tasks and schedules under a seeded sequence of faults, compared with a book of its own.

`make chaos SEED=7` runs it (`__main__.py`). `plan.py` draws from the seed what clients ask and which part fails when.
`stage.py` starts the parts and has them fail. `clients.py` asks, and `book.py` keeps what was answered and what handlers
and receivers saw. `verdict.py` compares all of it with the ledger at the end, `picture.py` draws the lateness.
"""
