"""What schemathesis makes of the OpenAPI document, sent to the harness: `python -m tests.fuzz`, in `make check`."""
