"""Phone numbers: the countries that they belong to, and what they cost."""
