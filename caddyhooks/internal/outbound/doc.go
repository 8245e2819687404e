// Package outbound makes one attempt at delivering a callback, and knows when the next one is due. Guard keeps
// attempts away from addresses that callers have no business with, Client signs and sends, RetryDelay is the schedule.
// Keeping deliveries, and deciding when to make which attempt, is the business of the caller. HeaderValue and RetryAfter
// serve the other client, the http runner, as well.
package outbound
