"""Poll a slow API each minute until it is done; a call that fails is made again.

The answers of the API are set here, and the clock is moved by hand. Run the program by itself:

    python poll.py

The program prints:

    00:00 202
    00:01 503
    00:06 202
    00:07 200
    done 12
"""

from duecourse.testing import Duecourse

URL = "https://api.example.com/exports/7"

with Duecourse() as duecourse:
    duecourse.answers(URL, status=202, json={"state": "working"})
    duecourse.answers(URL, status=503, headers={"Retry-After": "300"})
    duecourse.answers(URL, status=202, json={"state": "working"})
    duecourse.answers(URL, json={"state": "done", "rows": 12})

    payload = {"url": URL, "interval": "1m", "until": "state == 'done'", "result": "rows"}
    duecourse.add("poll", payload, id="export-7", deadline="1h")
    duecourse.advance("1h")
    for call in duecourse.sent.calls:
        print(f"{call.at:%H:%M} {call.status}")
    task = duecourse.client.get("export-7")
    print(task.status, task.result)
