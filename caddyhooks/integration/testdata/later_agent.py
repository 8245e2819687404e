"""An agent that takes every turn on, works until it is told to answer, and then keeps sending its answers until they are taken."""
import http.server
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

jobs, turns, sent = {}, [], []
go = threading.Event()


def answer(run, reply):
    go.wait()
    body = json.dumps({"text": "done " + run}).encode()
    while True:
        request = urllib.request.Request(reply["url"], data=body, method="POST", headers={
            "Authorization": "Bearer " + reply["token"], "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                sent.append([run, response.status])
                return
        except urllib.error.HTTPError as error:
            if error.code < 500:
                sent.append([run, error.code])
                return
        except OSError:
            pass
        time.sleep(0.05)


class Handler(http.server.BaseHTTPRequestHandler):
    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, {"turns": turns, "sent": sent, "pid": os.getpid()})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/go":
            go.set()
            return self.reply(200, {})
        turn = json.loads(body)
        turns.append(turn["runId"])
        threading.Thread(target=answer, args=(turn["runId"], turn["reply"]), daemon=True).start()
        self.reply(202, {})

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.serve_forever()
