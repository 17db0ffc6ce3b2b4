"""Times, texts, batches, masking and metrics: helpers that know nothing of tasks."""
