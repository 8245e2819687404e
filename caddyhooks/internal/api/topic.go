package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Topic is what a stream can be about.
type Topic int

const (
	TopicRuns Topic = iota
	TopicDeliveries
	TopicOverview
	TopicSettings
	TopicRefused
	Topics
)

// TopicNames are the names of topics, and of their events.
var TopicNames = [Topics]string{"runs", "deliveries", "overview", "settings", "refused"}

// PingEvery is how often a stream shows that it is alive.
const PingEvery = 15 * time.Second

// ParseTopics reads the names of topics. None are all.
func ParseTopics(names string) (about []Topic, err error) {
	if names == "" {
		names = strings.Join(TopicNames[:], ",")
	}
	for name := range strings.SplitSeq(names, ",") {
		t := Topic(slices.Index(TopicNames[:], strings.TrimSpace(name)))
		switch {
		case t < 0:
			return nil, Errorf(http.StatusBadRequest, "there is no topic %q; use %s", text.Abridge(name), text.List(TopicNames[:]))
		case !slices.Contains(about, t):
			about = append(about, t)
		}
	}
	return about, nil
}
