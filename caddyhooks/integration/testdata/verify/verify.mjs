// Verifies callbacks as they were received, with two libraries. Takes [{"secret", "headers", "body": base64}] on standard
// input, and prints for each what either library says: "verified", or why not. Later versions of svix than the one that
// is used here leave the work to standardwebhooks, and would be no second opinion.
import { readFileSync } from "node:fs";
import * as standardwebhooks from "standardwebhooks";
import * as svix from "svix";

const libraries = { standardwebhooks, svix };

function verdict({ Webhook, WebhookVerificationError }, { secret, headers, body }) {
  try {
    new Webhook(secret).verify(Buffer.from(body, "base64"), headers);
  } catch (error) {
    if (error instanceof WebhookVerificationError) return error.message;
    // Once the signature is right they parse the body as JSON, which a text need not be.
    if (!(error instanceof SyntaxError)) throw error;
  }
  return "verified";
}

const received = JSON.parse(readFileSync(0, "utf8"));
const verdicts = received.map((callback) =>
  Object.fromEntries(Object.entries(libraries).map(([name, library]) => [name, verdict(library, callback)])),
);
console.log(JSON.stringify(verdicts));
