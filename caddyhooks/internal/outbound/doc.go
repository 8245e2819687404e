// Package outbound makes one attempt at sending a request to another host. Client signs and sends callbacks, Guard keeps them
// away from internal addresses, and SendOnce sends the requests of channels. RetryDelay is the schedule of further attempts;
// the caller keeps deliveries and makes the attempts. The http runner uses HeaderValue and RetryAfter.
package outbound
