"""SMTP servers for tests, made of aiosmtpd.

Takes a JSON list of servers as its argument, and prints JSON lines: first the ports, in the order of the list; then, with
the number of the server, every step of a dialogue and every message. Ends with its standard input.

A server is {"tls": "starttls"|"on"|"off", "cert": file, "key": file, "user": name, "password": secret,
"mechanisms": [names], "utf8": bool, "on": {step: what}}. Steps are CONNECT, EHLO, STARTTLS, AUTH, MAIL, RCPT, DATA, DOT
and QUIT, or one of them with " in TLS" after it. What happens there, in place of what is usual, is "drop", "hang", "flood",
or an answer to give.
"""
import asyncio
import base64
import email
import email.policy
import hashlib
import hmac
import json
import logging
import ssl
import sys
import warnings

from aiosmtpd.smtp import SMTP, AuthResult, TLSSetupException

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)


class Server(SMTP):
    def __init__(self, number, spec):
        self.number, self.spec = number, spec
        tls, context = spec.get("tls", "off"), None
        if tls == "starttls":
            context = tls_context(spec)
        offered = spec.get("mechanisms", ["PLAIN", "LOGIN"]) if spec.get("user") else []
        super().__init__(
            self, hostname="mail.test", ident="test server", tls_context=context, require_starttls=tls == "starttls",
            enable_SMTPUTF8=spec.get("utf8", False), auth_required=bool(spec.get("user")),
            auth_require_tls=tls == "starttls", authenticator=self.check_login, loop=asyncio.get_running_loop(),
            auth_exclude_mechanism={"PLAIN", "LOGIN", "CRAM-MD5"} - set(offered))

    def say(self, **event):
        print(json.dumps({"server": self.number, **event}), flush=True)

    async def instead(self, step):
        """Does what is asked for at a step, and says whether the usual is off."""
        tls = self.transport.get_extra_info("ssl_object") is not None
        self.say(step=step, tls=tls)
        on = self.spec.get("on", {})
        what = on.get(step + " in TLS" if tls else step, on.get(step))
        if what is None:
            return False
        if what == "drop":
            self.transport.abort()
            await asyncio.Event().wait()
        elif what == "hang":
            await asyncio.Event().wait()
        elif what == "flood":
            while True:
                await self.push("250-" + 400 * "x")
        await self.push(what)
        return True

    async def handle_exception(self, error):
        if not isinstance(error, TLSSetupException):
            print(repr(error), file=sys.stderr)
        return "500 5.3.0 the test server failed"

    async def _handle_client(self):
        if await self.instead("CONNECT"):
            self.transport.close()
        else:
            await super()._handle_client()

    async def smtp_EHLO(self, arg):
        if not await self.instead("EHLO"):
            self.say(helo=arg)
            await super().smtp_EHLO(arg)

    async def smtp_STARTTLS(self, arg):
        if not await self.instead("STARTTLS"):
            await super().smtp_STARTTLS(arg)

    async def smtp_AUTH(self, arg):
        if not await self.instead("AUTH"):
            await super().smtp_AUTH(arg)

    async def smtp_MAIL(self, arg):
        if not await self.instead("MAIL"):
            await super().smtp_MAIL(arg)

    async def smtp_RCPT(self, arg):
        if not await self.instead("RCPT"):
            await super().smtp_RCPT(arg)

    async def smtp_DATA(self, arg):
        if not await self.instead("DATA"):
            await super().smtp_DATA(arg)

    async def smtp_QUIT(self, arg):
        if not await self.instead("QUIT"):
            await super().smtp_QUIT(arg)

    async def auth_CRAM__MD5(self, _, args):
        challenge = b"<1896.697170952@mail.test>"
        answer = await self.challenge_auth(challenge)
        if not isinstance(answer, bytes):
            return AuthResult(success=False)
        user, _, digest = answer.decode().rpartition(" ")
        want = hmac.new(self.spec["password"].encode(), challenge, hashlib.md5).hexdigest()
        return self.login("CRAM-MD5", user == self.spec["user"] and hmac.compare_digest(digest, want), answer)

    def check_login(self, server, session, envelope, mechanism, data):
        good = data.login.decode() == self.spec["user"] and data.password.decode() == self.spec["password"]
        return self.login(mechanism, good, data.password)

    def login(self, mechanism, good, said):
        self.say(mechanism=mechanism)
        if good:
            return AuthResult(success=True)
        # Like the worst of servers, it tells what it was told.
        return AuthResult(success=False, handled=False, message="535 5.7.8 no login with %s, %s or %s" % (
            said.decode(), base64.b64encode(said).decode(),
            base64.b64encode(b"\0" + self.spec["user"].encode() + b"\0" + said).decode()))

    async def handle_DATA(self, server, session, envelope):
        parsed = email.message_from_bytes(envelope.original_content, policy=email.policy.default)
        self.say(message={
            "from": envelope.mail_from, "to": envelope.rcpt_tos, "options": envelope.mail_options,
            "data": base64.b64encode(envelope.original_content).decode(),
            "parsed": {"from": str(parsed["From"]), "to": str(parsed["To"]), "subject": str(parsed["Subject"]),
                       "text": parsed.get_content(), "defects": [str(d) for part in parsed.walk() for d in part.defects]},
        })
        what = self.spec.get("on", {}).get("DOT")
        if what in ("drop", "hang"):
            await self.instead("DOT")
        return what or "250 2.0.0 queued"


def tls_context(spec):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(spec["cert"], spec["key"])
    return context


async def main():
    loop = asyncio.get_running_loop()
    # Connections that break are what is tested.
    loop.set_exception_handler(lambda loop, context: None)
    servers = []
    for number, spec in enumerate(json.loads(sys.argv[1])):
        context = tls_context(spec) if spec.get("tls") == "on" else None
        servers.append(await loop.create_server(
            lambda number=number, spec=spec: Server(number, spec), host="127.0.0.1", port=0, ssl=context))
    print(json.dumps([s.sockets[0].getsockname()[1] for s in servers]), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
