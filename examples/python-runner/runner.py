"""An agent behind caddyhooks, in a few lines: it is posted a turn as JSON and answers with text."""
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(turn):
    if turn["responseSchema"]:
        return '{"sentiment": "good"}'
    return f"I was told in {turn['chatId']}: {turn['message']}"


class Runner(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body is sent right after the headers

    def do_POST(self):
        turn = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = answer(turn).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Runner).serve_forever()
