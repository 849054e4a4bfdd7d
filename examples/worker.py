"""A worker for `truce work --keep-open`: reads one job per line and writes one reply per line.

    truce queue add mail '{"to": "ada@x.org"}'
    truce work --queue mail --keep-open --drain --exec python3 worker.py
"""
import json
import sys


def work(job, payload):
    """Runs a job. Returns its result, and the changes that one commit applies together with its end."""
    if "to" not in payload:
        raise ValueError("the payload has no \"to\"")
    return {"sent": payload["to"]}, [{"insert": "sent", "with": {"_id": job, "to": payload["to"]}}]


for line in sys.stdin:  # ends when no job is left
    message = json.loads(line)
    # This worker runs one job at a time, so a cancellation refers to a job that has already ended.
    if "cancel" in message:
        continue
    answer = {"epoch": message["epoch"]}
    try:
        result, changes = work(message["job"], message["payload"])
        answer.update(done=message["job"], result=result, changes=changes)
    except Exception as error:
        answer.update(fail=message["job"], error=str(error))
    print(json.dumps(answer), flush=True)  # write nothing else to standard output
