package browsertest

import (
	"context"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// requests are those that a tab is waiting for, by their addresses. A stream is one for as long as the page holds it.
type requests struct {
	mu   sync.Mutex
	open map[network.RequestID]string
}

func (q *requests) listen(ctx context.Context) {
	q.open = make(map[network.RequestID]string)
	chromedp.ListenTarget(ctx, func(event any) {
		q.mu.Lock()
		defer q.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			q.open[e.RequestID] = e.Request.URL
		case *network.EventLoadingFinished:
			delete(q.open, e.RequestID)
		case *network.EventLoadingFailed:
			delete(q.open, e.RequestID)
		}
	})
}

// Waiting is how many requests the tab is waiting for whose address holds a text.
func (tab *Tab) Waiting(part string) (n int) {
	q := tab.requests
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, url := range q.open {
		if strings.Contains(url, part) {
			n++
		}
	}
	return n
}
