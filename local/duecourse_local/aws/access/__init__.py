"""Proofs of identity that API Gateway demands: signatures (IAM) and tokens (JWT), made and checked on this machine."""
