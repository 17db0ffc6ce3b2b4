"""The pages of the reference that are written from the code."""
