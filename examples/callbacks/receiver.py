"""Receives callbacks: checks their signature, drops repeats, and shows the next one at GET /next."""
import base64
import hashlib
import hmac
import os
import queue
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode("dHJ5LW1lLXRyeS1tZS10cnktbWUtdHJ5LW1l")  # what follows whsec_
answers = queue.Queue()
seen = set()
orders = 0


def signed(headers, body):
    """Standard Webhooks. There are libraries for it in most languages; this is all there is to it."""
    try:
        message_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
        if abs(time.time() - int(timestamp)) > 300:
            return False
        message = f"{message_id}.{timestamp}.".encode() + body
        wanted = base64.b64encode(hmac.digest(SECRET, message, hashlib.sha256)).decode()
        return any(hmac.compare_digest(one, "v1," + wanted) for one in headers["webhook-signature"].split())
    except (AttributeError, TypeError, ValueError):
        return False


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global orders
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not signed(self.headers, body):
            return self.answer(401, b"not signed with our secret\n")
        if self.path == "/orders" and (orders := orders + 1) == 1:
            return self.answer(410, b"there is no such order yet\n")
        if self.headers["webhook-id"] not in seen:
            seen.add(self.headers["webhook-id"])
            answers.put(self.headers["X-Service-Run-Status"].encode() + b": " + body + b"\n")
        self.answer(200, b"")

    def do_GET(self):
        self.answer(200, answers.get(timeout=20))

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Receiver).serve_forever()
