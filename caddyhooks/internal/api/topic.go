package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

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

// Topic is what a stream can be about.
type Topic int

const (
	TopicRuns Topic = iota
	TopicDeliveries
	TopicOverview
	TopicSettings
	Topics
)

// TopicNames are the names of topics, and of their events.
var TopicNames = [Topics]string{"runs", "deliveries", "overview", "settings"}

const (
	// MaxRows bounds the rows of a frame.
	MaxRows = 50
	// FrameEvery is the time between two frames.
	FrameEvery = 250 * time.Millisecond
	// HearEvery is how often other nodes are asked about.
	HearEvery = time.Second
	// OverviewEvery is the time between two frames of the overview.
	OverviewEvery = 5 * time.Second
	// PingEvery is how often a stream shows that it is alive.
	PingEvery = 15 * time.Second
	// RememberedFrames is how many frames a page may have missed.
	RememberedFrames = 256
	// MaxStreams bounds the streams of an instance.
	MaxStreams = 64
	// MaxStreamShare bounds the streams of one account.
	MaxStreamShare = MaxStreams / 4
	// EventLinger is how long events are remembered without any stream.
	EventLinger = time.Minute
	// FramePatience is how long the store is waited for when a frame is made.
	FramePatience = 2 * time.Second
)
