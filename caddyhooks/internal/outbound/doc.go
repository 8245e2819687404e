// Package outbound makes one attempt at sending something to a host outside, and knows when the next one is due. Guard
// keeps callbacks away from addresses that callers have no business with, Client signs and sends them, Exchange sends
// whatever else goes out over HTTP, RetryDelay is the schedule. Keeping deliveries, and deciding when to make which
// attempt, is the business of the caller. HeaderValue and RetryAfter serve the http runner as well.
package outbound
