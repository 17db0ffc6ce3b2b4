"""Operations of the ledger on Redis or Valkey, a module a group."""
