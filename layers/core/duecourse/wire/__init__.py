"""The JSON shapes that cross a process boundary: what is accepted, what is answered, and how a refusal reads."""
