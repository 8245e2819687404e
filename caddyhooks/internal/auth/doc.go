// Package auth decides whether a webhook request may come in. A Verifier judges its credential: Tokens bearer tokens,
// HeaderToken a secret in a header, HMAC, Ed25519 and Twilio signatures, and FirstSent several of them; package oidc has
// one for tokens of issuers. Throttle tells when a client address has failed so often that it should be told to slow down.
//
// Everything here is safe for concurrent use, and secrets are compared in constant time.
package auth
