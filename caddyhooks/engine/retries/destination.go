// Package retries decides when deliveries are tried again that failed: each has a schedule of its own, and a host or a chat to which
// attempts fail again and again gets pauses. It is a part of package engine, and knows neither deliveries nor stores.
package retries

import (
	"net"
	"net/url"
	"strings"
	"time"
)

// Destination is where a delivery goes to, as far as that matters for when it can be sent.
type Destination struct {
	Host string // what may be slow or down as a whole: the origin of a callback, or a channel
	Chat string // on a channel: what is written to one message at a time
}

// OnChannel is a chat of a channel.
func OnChannel(channel, chat string) Destination {
	return Destination{Host: channelHost + channel, Chat: chat}
}

// ByCallback is the receiver of a callback.
func ByCallback(callback string) Destination {
	scheme, _, _ := strings.Cut(strings.ToLower(callback), ":")
	return Destination{Host: scheme + "://" + HostOf(callback)}
}

// HostOf is the host and port of a callback, "" if it has none.
func HostOf(callback string) string {
	u, err := url.Parse(callback)
	if err != nil || u.Host == "" {
		return ""
	}
	port := u.Port()
	if port == "" && u.Scheme == "https" {
		port = "443"
	} else if port == "" {
		port = "80"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// channelHost is how the host of a channel begins. Those of callbacks begin with a scheme.
const channelHost = "channel/"

// Channel is the name of the channel, "" of a callback.
func (d Destination) Channel() string {
	if channel, ok := strings.CutPrefix(d.Host, channelHost); ok {
		return channel
	}
	return ""
}

// Throttle bounds the deliveries that are handed out to a host or to a chat of a channel. It replaces the one before it,
// and is forgotten when nothing is pending for the host or the chat any more. The zero values lift it.
type Throttle struct {
	To     Destination   // a host, or with Chat set only that chat
	AtOnce int           // how many may be under way at once, 0 for engine.PerHost; of no account for a chat
	Pause  time.Duration // hand out none for so long
}

// UntilNext is how long a delivery waits that has a pause of its own, after throttles of its host and of its chat.
func UntilNext(to Destination, own time.Duration, throttles []Throttle) time.Duration {
	pauses := make(map[Destination]time.Duration)
	for _, t := range throttles { // of two for the same, the last one counts
		pauses[t.To] = t.Pause
	}
	return max(own, pauses[to], pauses[Destination{Host: to.Host}])
}
