"""Plays the services: it takes every message, and GET /next shows the next one, as soon as there is one."""
import json
import os
import queue
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

messages = queue.Queue()


class Inbox(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        messages.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(b'{"ok": true, "id": "1", "event_id": "$1"}')

    do_PUT = do_POST

    def do_GET(self):
        if self.path != "/next":  # Matrix asks for the room that has an alias
            self.answer(b'{"room_id": "!r:example.org"}')
            return
        message = json.loads(messages.get(timeout=120))
        self.answer(json.dumps(message, indent=2).encode() + b"\n")

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Inbox).serve_forever()
