"""Commands of a project: its functions, its template, its build."""
