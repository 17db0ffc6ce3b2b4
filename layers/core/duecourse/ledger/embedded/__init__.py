"""Ledgers in memory and in LevelDB: the same scripts in this process.

The operations have no second implementation. A store is a disk for the Redis in this process, open in one process at a
time. A database that several processes share, such as PostgreSQL, cannot be added so.

To add a database, write its disk beside `leveldb.py`: load, save, check and close, as Server calls them. `ledger.py`
and `in_process_redis.py` type the disk as LevelDisk. In `ledger/address.py`, its scheme belongs to URL_FORMS and
WITHOUT_BELLS, and to the branch of `check_store` for a folder. `open_ledger.py` needs its branch, `store` of
`settings.py` its scheme in the text. In `local/duecourse_local`, `cli/target.py` and SCHEMES of `harness/addresses.py`
name it too. The ledger's tests (`test_rules_*.py`) run on it once STORES and `opened` of `tests/support/stores.py` have
it.
"""
