// Signs requests the way senders do. Takes a line of JSON for each on standard input, {"sender", "secret", "url", "body",
// "time", "id"} with the time in seconds, and prints a line {"url", "body", "headers", "vouched"} for it, or {"error"}. Where the
// sender has a library of its own, that library signs, or verifies what was signed here; vouched names it.
import { createHmac, createPrivateKey, createPublicKey, sign } from "node:crypto";
import { createInterface } from "node:readline";
import hubspot from "@hubspot/api-client";
import { LinearWebhookClient } from "@linear/sdk/webhooks";
import notion from "@notionhq/client";
import { Webhooks } from "@octokit/webhooks";
import { EventWebhook } from "@sendgrid/eventwebhook";
import { ApiVersion, LogSeverity, shopifyApi } from "@shopify/shopify-api";
import "@shopify/shopify-api/adapters/node";
import bolt from "@slack/bolt";
import { AwsLambdaReceiver } from "@zoom/rivet/users";
import discord from "discord-interactions";
import { Bot, webhookCallback } from "grammy";
import square from "square";
import * as standardwebhooks from "standardwebhooks";
import Stripe from "stripe";
import * as svix from "svix";
import nacl from "tweetnacl";
import twilio from "twilio";
import { WhatsAppAPI } from "whatsapp-api-js";

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
console.log = console.info = console.debug = () => {}; // some libraries log

const hmac = (secret, data, encoding = "hex") => createHmac("sha256", secret).update(data, "utf8").digest(encoding);

// insist stops with what was signed wrongly.
function insist(vouched, library) {
  if (!vouched) throw new Error(`${library} does not take it for genuine`);
  return library;
}

function standard(library, prefix, name) {
  return ({ secret, body, time, id }) => {
    const signature = new library.Webhook(secret).sign(id, new Date(time * 1000), body);
    return { headers: { [`${prefix}-id`]: id, [`${prefix}-timestamp`]: `${time}`, [`${prefix}-signature`]: signature }, vouched: name };
  };
}

const senders = {
  async github({ secret, body, id }) {
    const webhooks = new Webhooks({ secret });
    const signature = await webhooks.sign(body);
    const vouched = insist(await webhooks.verify(body, signature), "@octokit/webhooks");
    return { headers: { "X-Hub-Signature-256": signature, "X-GitHub-Delivery": id }, vouched };
  },
  gitlab: ({ secret, id }) => ({ headers: { "X-Gitlab-Token": secret, "Idempotency-Key": id } }),
  "gitlab-signed": standard(standardwebhooks, "webhook", "standardwebhooks"),
  async bitbucket({ secret, body, id }) {
    const signature = `sha256=${hmac(secret, body)}`; // the same as GitHub's, in another header
    const vouched = insist(await new Webhooks({ secret }).verify(body, signature), "@octokit/webhooks");
    return { headers: { "X-Hub-Signature": signature, "X-Request-UUID": id }, vouched };
  },
  stripe({ secret, body, time }) {
    const header = Stripe.webhooks.generateTestHeaderString({ payload: body, secret, timestamp: time });
    const event = Stripe.webhooks.constructEvent(body, header, secret, 300, undefined, time * 1000);
    return { headers: { "Stripe-Signature": header }, vouched: insist(event, "stripe") };
  },
  slack({ secret, body, time }) {
    const signature = `v0=${hmac(secret, `v0:${time}:${body}`)}`;
    const headers = { "x-slack-signature": signature, "x-slack-request-timestamp": time };
    bolt.verifySlackRequest({ signingSecret: secret, body, headers, nowMilliseconds: time * 1000 });
    return { headers: { "X-Slack-Signature": signature, "X-Slack-Request-Timestamp": `${time}` }, vouched: "@slack/bolt" };
  },
  async shopify({ secret, body, id }) {
    const headers = {
      "X-Shopify-Topic": "orders/create",
      "X-Shopify-Hmac-Sha256": hmac(secret, body, "base64"),
      "X-Shopify-Shop-Domain": "example.myshopify.com",
      "X-Shopify-API-Version": "2026-04",
      "X-Shopify-Webhook-Id": id,
    };
    const shopify = shopifyApi({
      apiKey: "key",
      apiSecretKey: secret,
      apiVersion: Object.values(ApiVersion)[0],
      hostName: "example.com",
      isEmbeddedApp: true,
      logger: { level: LogSeverity.Error },
    });
    const verdict = await shopify.webhooks.validate({ rawBody: body, rawRequest: { method: "POST", url: "/", headers }, rawResponse: {} });
    return { headers, vouched: insist(verdict.valid, "@shopify/shopify-api") };
  },
  linear({ secret, body, time, id }) {
    const signature = hmac(secret, body);
    const headers = { "Linear-Signature": signature, "Linear-Delivery": id, "Linear-Event": "Issue" };
    if (Math.abs(Date.now() / 1000 - time) > 50) return { headers }; // the library would refuse it for its age, as a hook must
    return { headers, vouched: insist(new LinearWebhookClient(secret).verify(Buffer.from(body), signature), "@linear/sdk") };
  },
  sentry: ({ secret, body, time, id }) => ({
    headers: { "Sentry-Hook-Signature": hmac(secret, body), "Sentry-Hook-Timestamp": `${time}`, "Request-ID": id },
  }),
  pagerduty: ({ secret, body }) => ({
    // Of two secrets while one replaces the other, of which we have one.
    headers: { "X-PagerDuty-Signature": `v1=${hmac("another", body)},v1=${hmac(secret, body)}` },
  }),
  grafana: ({ secret, body }) => ({ headers: { "X-Grafana-Alerting-Signature": hmac(secret, body) } }),
  "grafana-timestamp": ({ secret, body, time }) => ({
    headers: { "X-Grafana-Alerting-Signature": hmac(secret, `${time}:${body}`), "X-Grafana-Alerting-Timestamp": `${time}` },
  }),
  async discord({ secret, body, time }) {
    // The secret is the seed of a key pair. A hook is given the public key.
    const pair = nacl.sign.keyPair.fromSeed(Buffer.from(secret, "hex"));
    const signature = Buffer.from(nacl.sign.detached(Buffer.from(`${time}${body}`), pair.secretKey)).toString("hex");
    const key = Buffer.from(pair.publicKey).toString("hex");
    const vouched = insist(await discord.verifyKey(body, signature, `${time}`, key), "discord-interactions");
    return { headers: { "X-Signature-Ed25519": signature, "X-Signature-Timestamp": `${time}` }, vouched };
  },
  async telegram({ secret, body }) {
    const bot = new Bot("1:a", { botInfo: { id: 1, is_bot: true, first_name: "a", username: "a_bot" } });
    const headers = { "X-Telegram-Bot-Api-Secret-Token": secret };
    const receive = webhookCallback(bot, "std/http", { secretToken: secret });
    const answer = await receive(new Request("http://example.com", { method: "POST", headers, body }));
    return { headers, vouched: insist(answer.status === 200, "grammy") };
  },
  twilio({ secret, body, url, id }) {
    const params = {};
    for (const [name, value] of new URLSearchParams(body)) {
      params[name] = name in params ? [params[name], value].flat() : value;
    }
    const signature = twilio.getExpectedTwilioSignature(secret, url, params);
    const headers = { "X-Twilio-Signature": signature, "I-Twilio-Idempotency-Token": id };
    return { headers: { ...headers, "Content-Type": "application/x-www-form-urlencoded; charset=UTF-8" }, vouched: "twilio" };
  },
  "twilio-json"({ secret, body, url, id }) {
    url += `${url.includes("?") ? "&" : "?"}bodySHA256=${twilio.getExpectedBodyHash(body)}`;
    const signature = twilio.getExpectedTwilioSignature(secret, url, {});
    const headers = { "X-Twilio-Signature": signature, "I-Twilio-Idempotency-Token": id, "Content-Type": "application/json" };
    return { url, headers, vouched: "twilio" };
  },
  hubspot({ secret, body, url, time }) {
    const timestamp = time * 1000;
    const options = { clientSecret: secret, requestBody: body, url, timestamp };
    const signature = hubspot.Signature.getSignature("POST", "v3", options);
    return { headers: { "X-HubSpot-Signature-v3": signature, "X-HubSpot-Request-Timestamp": `${timestamp}` }, vouched: "@hubspot/api-client" };
  },
  zendesk({ secret, body, time, id }) {
    const at = new Date(time * 1000).toISOString().replace(".000Z", "Z");
    const headers = { "X-Zendesk-Webhook-Signature-Timestamp": at, "X-Zendesk-Webhook-Invocation-Id": id };
    return { headers: { "X-Zendesk-Webhook-Signature": hmac(secret, at + body, "base64"), ...headers } };
  },
  calendly: ({ secret, body, time }) => ({ headers: { "Calendly-Webhook-Signature": `t=${time},v1=${hmac(secret, `${time}.${body}`)}` } }),
  async square({ secret, body, url }) {
    const signature = hmac(secret, url + body, "base64");
    const asked = { requestBody: body, signatureHeader: signature, signatureKey: secret, notificationUrl: url };
    const vouched = insist(await square.WebhooksHelper.verifySignature(asked), "square");
    return { headers: { "x-square-hmacsha256-signature": signature }, vouched };
  },
  typeform: ({ secret, body }) => ({ headers: { "Typeform-Signature": `sha256=${hmac(secret, body, "base64")}` } }),
  intercom: ({ secret, body }) => ({
    headers: { "X-Hub-Signature": `sha1=${createHmac("sha1", secret).update(body).digest("hex")}` },
  }),
  mailgun({ secret, body, time, id }) {
    const token = hmac("a token for", id + time).slice(0, 50);
    const signature = { timestamp: `${time}`, token, signature: hmac(secret, time + token) };
    return { headers: {}, body: JSON.stringify({ ...JSON.parse(body), signature }) };
  },
  sendgrid({ secret, body, time }) {
    // The secret is a private key. A hook is given the public key.
    const key = createPrivateKey({ key: Buffer.from(secret, "base64"), format: "der", type: "pkcs8" });
    const signature = sign("sha256", Buffer.from(`${time}${body}`), key).toString("base64");
    const webhook = new EventWebhook();
    const known = webhook.convertPublicKeyToECDSA(createPublicKey(key).export({ format: "pem", type: "spki" }));
    const vouched = insist(webhook.verifySignature(known, body, signature, `${time}`), "@sendgrid/eventwebhook");
    const headers = { "X-Twilio-Email-Event-Webhook-Signature": signature, "X-Twilio-Email-Event-Webhook-Timestamp": `${time}` };
    return { headers, vouched };
  },
  teams: ({ secret, body }) => ({
    headers: { Authorization: `HMAC ${hmac(Buffer.from(secret.replace(/^whsec_/, ""), "base64"), body, "base64")}` },
  }),
  async notion({ secret, body }) {
    const signature = await notion.signWebhookPayload({ body, verificationToken: secret });
    const vouched = insist(await notion.verifyWebhookSignature({ body, signature, verificationToken: secret }), "@notionhq/client");
    return { headers: { "X-Notion-Signature": signature }, vouched };
  },
  async zoom({ secret, body, time }) {
    const headers = { "x-zm-signature": `v0=${hmac(secret, `v0:${time}:${body}`)}`, "x-zm-request-timestamp": `${time}` };
    if (JSON.stringify(JSON.parse(body)) !== body) return { headers }; // the library would write it anew before it verifies it
    const receiver = new AwsLambdaReceiver({ webhooksSecretToken: secret });
    const answer = await receiver.start()({ body, headers, isBase64Encoded: false }, {});
    return { headers, vouched: insist(answer.statusCode === 200, "@zoom/rivet"), answer: answer.body };
  },
  async meta({ secret, body }) {
    const signature = `sha256=${hmac(secret, body)}`;
    const whatsapp = new WhatsAppAPI({ token: "a", appSecret: secret, v: "v24.0" });
    return { headers: { "X-Hub-Signature-256": signature }, vouched: insist(await whatsapp.verifyRequestSignature(body, signature), "whatsapp-api-js") };
  },
  dropbox: ({ secret, body }) => ({ headers: { "X-Dropbox-Signature": hmac(secret, body) } }),
  graph({ secret, body }) {
    const asked = JSON.parse(body);
    for (const notification of asked.value) notification.clientState = secret;
    return { headers: {}, body: JSON.stringify(asked) };
  },
  eventgrid: ({ secret, url }) => ({ url: `${url}?access_token=${secret}`, headers: { "aeg-event-type": "Notification" } }),
  standard: standard(standardwebhooks, "webhook", "standardwebhooks"),
  svix: standard(svix, "svix", "svix"),
  // Senders of nobody in particular.
  token: ({ secret, id }) => ({ headers: { Authorization: `Bearer ${secret}`, "Idempotency-Key": id } }),
  hmac: ({ secret, body, time }) => ({ headers: { "X-Timestamp": `${time}`, "X-Signature": `sha256=${hmac(secret, `${time}.${body}`)}` } }),
  "hmac-rfc3339"({ secret, body, time }) {
    const at = new Date(time * 1000).toISOString();
    return { headers: { "X-Timestamp": at, "X-Signature": hmac(secret, `${at}.${body}`) } };
  },
  "hmac-entry": ({ secret, body, time }) => ({
    headers: { "X-Signature": `t=${time * 1000},v1=${hmac(Buffer.from(secret, "base64"), `${time * 1000}.${body}`)}` },
  }),
  cloudevents: ({ secret }) => ({ headers: { Authorization: `Bearer ${secret}`, "Content-Type": "application/cloudevents+json" } }),
  "cloudevents-binary"({ secret, id }) {
    const event = { "ce-specversion": "1.0", "ce-id": id, "ce-source": "/shop", "ce-type": "order.paid", "Content-Type": "application/json" };
    return { headers: { Authorization: `Bearer ${secret}`, ...event } };
  },
  "token-header": ({ secret, id }) => ({ headers: { "X-Api-Key": secret, "Idempotency-Key": id } }),
  hmac512: ({ secret, body }) => ({ headers: { "X-Signature": createHmac("sha512", secret).update(body).digest("base64") } }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  try {
    print({ url: asked.url, body: asked.body, ...(await senders[asked.sender](asked)) });
  } catch (error) {
    print({ error: `${asked.sender}: ${error.stack}` });
  }
}
