"""Sends a file to a hook, signed with the time and the secret in $SECRET: send.py <url> <file>"""
import hmac
import os
import sys
import time
import urllib.request

url, file = sys.argv[1:]
with open(file, "rb") as f:
    body = f.read()
now = str(int(time.time()))
signature = hmac.new(os.environ["SECRET"].encode(), now.encode() + b"." + body, "sha256").hexdigest()
request = urllib.request.Request(url, body, {
    "Content-Type": "application/json",
    "X-Program": "reports",
    "X-Timestamp": now,
    "X-Signature": "sha256=" + signature,
})
with urllib.request.urlopen(request) as answer:
    print(answer.read().decode())
