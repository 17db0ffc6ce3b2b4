"""The ledger: values that are stored, their records, and the scripts that change them; each verb is in `operations/`.

A bell is a key that expires in Redis when the next task of a shard is due. A bridge hears that, and has the shard
worked.
"""
