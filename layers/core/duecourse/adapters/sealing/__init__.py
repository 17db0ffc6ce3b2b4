"""Encryption of credentials by `cryptography`, loaded when something is sealed or opened."""
