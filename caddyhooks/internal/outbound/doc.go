// Package outbound makes one attempt at sending a request to another host. Client signs and sends callbacks, Guard keeps them
// away from internal addresses and fetches documents, and SendOnce sends the requests of channels. The engine keeps deliveries and
// decides about further attempts. Runners use HeaderValue and RetryAfter. It imports engine alone.
package outbound
