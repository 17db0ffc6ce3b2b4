"""Events of functions, read without pydantic: a cold start reads one."""
