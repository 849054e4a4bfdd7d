"""A worker for `truce work --keep-open`: it reads a job a line and answers it by a line.

    truce queue add mail '{"to": "ada@x.org"}'
    truce work --queue mail --keep-open --drain --exec python3 worker.py
"""
import json
import sys


def work(job, payload):
    """What a job does: it returns its result, and the changes that are made in one commit with its end."""
    if "to" not in payload:
        raise ValueError("the payload has no \"to\"")
    return {"sent": payload["to"]}, [{"insert": "sent", "with": {"_id": job, "to": payload["to"]}}]


for line in sys.stdin:  # it ends when there are no more jobs
    message = json.loads(line)
    if "cancel" in message:  # of a job that was answered meanwhile: this worker has one at a time
        continue
    answer = {"epoch": message["epoch"]}
    try:
        result, changes = work(message["job"], message["payload"])
        answer.update(done=message["job"], result=result, changes=changes)
    except Exception as error:
        answer.update(fail=message["job"], error=str(error))
    print(json.dumps(answer), flush=True)  # nothing else goes to standard output
