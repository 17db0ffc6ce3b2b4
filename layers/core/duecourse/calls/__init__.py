"""Built-in kinds of tasks that call the web: webhooks and polls.

To add a built-in kind, write a module here: from a task to an outcome, with the outside world as parameters. The
shape of its payload belongs to `api/kind_payloads.py`, its name to BUILT_IN in `settings.py`, its construction to
`app.py`. If its payload has a URL, its name belongs to CALLING of `tasks/kinds.py`; if it names a credential in `auth`,
to NAMING of `base/masking.py`. Test it with a small real counterpart, and save an event in `events/enqueue_http`.

What all calls share (the request, Retry-After, an answer in words) is in `request_and_answer.py`; the client is
`guard/http_client.py`. `retry_after` bounds Retry-After, for `_judge` of `poll.py` and of `webhook.py`; `_retry` and
`_again` of `running/run.py` only set the shortest wait.
"""
