"""An agent behind caddyhooks that takes its time: it takes a turn on with 202, and posts the answer when it is done."""
import json
import os
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

jobs = {}  # by the key of the turn; a real agent keeps them on disk, so that they survive a restart
lock = threading.Lock()


def work(turn, job):
    """Works for a while. Returns nothing if the job is cancelled meanwhile."""
    seconds = 3600 if "slowly" in turn["message"] else 2
    if job["cancelled"].wait(seconds):
        return None
    return f"I thought about it for {seconds} seconds: {turn['message']}"


def carry_out(turn, job):
    try:
        text = work(turn, job)
        answer = None if text is None else {"text": text}
    except Exception as error:
        answer = {"error": str(error)}
    if answer:
        send(turn["reply"], answer)


def send(reply, answer):
    """Posts an answer, again and again while Caddy is not there."""
    request = urllib.request.Request(reply["url"], json.dumps(answer).encode(), {
        "Authorization": "Bearer " + reply["token"], "Content-Type": "application/json"})
    for pause in [1, 2, 4, 8, 16] + [30] * 2880:  # a day
        try:
            urllib.request.urlopen(request, timeout=30).close()
            return
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                return  # the run is over, or has its answer
        except OSError:
            pass
        time.sleep(pause)


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body is sent right after the headers

    def do_POST(self):
        turn = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "reply" not in turn:
            return self.answer(400, "this agent answers later: set async and public_url")
        key = self.headers["Idempotency-Key"]
        with lock:
            if key not in jobs:  # otherwise the same turn came again, and is being worked on
                jobs[key] = {"cancelled": threading.Event()}
                threading.Thread(target=carry_out, args=(turn, jobs[key]), daemon=True).start()
        self.answer(202, "", Location="/jobs/" + key)

    def do_DELETE(self):
        job = jobs.get(self.path.removeprefix("/jobs/"))
        if not job:
            return self.answer(404, "there is no such job")
        job["cancelled"].set()
        self.answer(204, "")

    def do_GET(self):
        states = ["cancelled" if job["cancelled"].is_set() else "begun" for job in jobs.values()]
        self.answer(200, ", ".join(states) + "\n")

    def answer(self, status, text, **headers):
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        if status != 204:
            self.send_header("Content-Length", str(len(text.encode())))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Agent).serve_forever()
