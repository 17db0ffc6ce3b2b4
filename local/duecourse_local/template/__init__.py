"""The description of the functions, read from `template.yaml`."""
