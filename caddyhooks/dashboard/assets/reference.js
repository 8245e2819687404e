// @ts-check
// Where the documentation explains each field of the page.
import { el } from "./dom.js";

const docs = "https://github.com/caddy-hooks/caddy-hooks/blob/main/caddyhooks/docs/reference/";

/** Pages and places on them, by the names of fields in JSON. @type {Record<"settings" | "hook", Record<string, string>>} */
const places = {
	settings: {
		enabled: "caddyfile.md#hooks-enabled",
		token: "authentication.md#tokens",
		defaultTimeoutSeconds: "caddyfile.md#hooks-default_timeout",
		maxPayloadSize: "caddyfile.md#hooks-max_payload",
		memoryPreset: "caddyfile.md#hooks-memory_preset",
		historySeconds: "admin-api.md#history",
		keepRefusedSeconds: "logs.md#requests-that-are-kept",
		wakeFold: "caddyfile.md#hooks-wake_fold",
	},
	hook: {
		name: "caddyfile.md#hooks-hook",
		action: "caddyfile.md#hook-action",
		authMode: "authentication.md#custom-hooks",
		authSecret: "authentication.md#custom-hooks",
		authTolerance: "caddyfile.md#auth-sender-tolerance",
		authHeader: "authentication.md#tokens-in-another-header",
		verifyToken: "authentication.md#challenges",
		hmacHeader: "authentication.md#signatures-of-your-own",
		hmacSecret: "authentication.md#signatures-of-your-own",
		hmacPrefix: "authentication.md#signatures-of-your-own",
		algorithm: "caddyfile.md#auth-hmac-algorithm",
		signed: "caddyfile.md#auth-hmac-signed",
		timestampHeader: "caddyfile.md#auth-hmac-timestamp",
		timestampFormat: "caddyfile.md#auth-hmac-timestamp",
		keyEncoding: "caddyfile.md#auth-hmac-key_encoding",
		oidcIssuer: "authentication.md#tokens-of-an-issuer",
		oidcAudience: "authentication.md#tokens-of-an-issuer",
		oidcClaims: "authentication.md#claims",
		oidcKeys: "caddyfile.md#auth-oidc-keys",
		from: "caddyfile.md#hook-from",
		only: "templates-and-conditions.md#which-requests-count",
		skip: "templates-and-conditions.md#which-requests-count",
		each: "templates-and-conditions.md#one-run-for-each-item",
		body: "templates-and-conditions.md#forms",
		maxPayloadSize: "caddyfile.md#hook-max_payload",
		foldSeconds: "templates-and-conditions.md#fold",
		foldMax: "templates-and-conditions.md#fold",
		rate: "templates-and-conditions.md#rate",
		workers: "templates-and-conditions.md#workers",
		respondStatus: "templates-and-conditions.md#the-answer-to-the-sender",
		respondBody: "templates-and-conditions.md#the-answer-to-the-sender",
		messageTemplate: "templates-and-conditions.md#templates",
		chatId: "caddyfile.md#hook-chat_id",
		model: "caddyfile.md#hook-model",
		runner: "runners.md#several-runners",
		memoryPreset: "caddyfile.md#hook-memory_preset",
		timeoutSeconds: "caddyfile.md#hook-timeout",
		queueTimeSeconds: "caddyfile.md#hook-queue_time",
		idempotencyHeader: "http-api.md#repeated-requests",
		untrusted: "templates-and-conditions.md#outside-text",
		historySeconds: "admin-api.md#history",
		metadata: "caddyfile.md#hook-metadata",
		syncResponse: "http-api.md#waiting-for-the-answer",
		responseJsonSchema: "caddyfile.md#hook-response_schema",
		responseValidationModelTier: "caddyfile.md#hook-validation_tier",
		callbackUrl: "channels.md#callbacks",
		deliver: "channels.md#channels",
		channel: "channels.md#channels",
		to: "channels.md#channels",
		ask: "caddyfile.md#hook-ask",
		budgets: "caddyfile.md#hook-budget",
		progress: "channels.md#progress",
	},
};

/** A link to what the documentation says of a field. @param {keyof typeof places} kind @param {string} name in JSON @param {string} label */
export const reference = (kind, name, label) => el("a.reference", {
	href: docs + places[kind][name], target: "_blank", rel: "noopener noreferrer", "aria-label": `Reference: ${label}`, title: `Reference: ${label}`,
}, "?");
