// Signs requests the way senders do. Takes a line of JSON for each on standard input, {"sender", "secret", "url", "body",
// "time", "id"} with the time in seconds, and prints a line {"url", "headers", "vouched"} for it, or {"error"}. Where the
// sender has a library of its own, that library signs, or verifies what was signed here; vouched names it.
import { createHmac } from "node:crypto";
import { createInterface } from "node:readline";
import { LinearWebhookClient } from "@linear/sdk/webhooks";
import { Webhooks } from "@octokit/webhooks";
import { ApiVersion, LogSeverity, shopifyApi } from "@shopify/shopify-api";
import "@shopify/shopify-api/adapters/node";
import bolt from "@slack/bolt";
import discord from "discord-interactions";
import { Bot, webhookCallback } from "grammy";
import * as standardwebhooks from "standardwebhooks";
import Stripe from "stripe";
import * as svix from "svix";
import nacl from "tweetnacl";
import twilio from "twilio";

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
  twilio({ secret, body, url }) {
    const params = {};
    for (const [name, value] of new URLSearchParams(body)) {
      params[name] = name in params ? [params[name], value].flat() : value;
    }
    const signature = twilio.getExpectedTwilioSignature(secret, url, params);
    return { headers: { "X-Twilio-Signature": signature, "Content-Type": "application/x-www-form-urlencoded; charset=UTF-8" }, vouched: "twilio" };
  },
  "twilio-json"({ secret, body, url }) {
    url += `${url.includes("?") ? "&" : "?"}bodySHA256=${twilio.getExpectedBodyHash(body)}`;
    const signature = twilio.getExpectedTwilioSignature(secret, url, {});
    return { url, headers: { "X-Twilio-Signature": signature, "Content-Type": "application/json" }, vouched: "twilio" };
  },
  standard: standard(standardwebhooks, "webhook", "standardwebhooks"),
  svix: standard(svix, "svix", "svix"),
  // Senders of nobody in particular.
  token: ({ secret, id }) => ({ headers: { Authorization: `Bearer ${secret}`, "Idempotency-Key": id } }),
  hmac: ({ secret, body, time }) => ({ headers: { "X-Timestamp": `${time}`, "X-Signature": `sha256=${hmac(secret, `${time}.${body}`)}` } }),
  hmac512: ({ secret, body }) => ({ headers: { "X-Signature": createHmac("sha512", secret).update(body).digest("base64") } }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  try {
    console.log(JSON.stringify({ url: asked.url, ...(await senders[asked.sender](asked)) }));
  } catch (error) {
    console.log(JSON.stringify({ error: `${asked.sender}: ${error.stack}` }));
  }
}
