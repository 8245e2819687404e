// Package auth decides whether a webhook request may come in. A Verifier judges its credential: Tokens the shared bearer
// token, HMAC the signature of a custom hook. Throttle tells when a client address has failed so often that it should be told
// to slow down.
//
// Everything here is safe for concurrent use, and secrets are compared in constant time.
package auth
