package caddyhooks_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkProgress measures accepting runs of a hook that delivers its answers to a chat: without progress, with progress, and with
// progress while the service hangs. They are measured in turns, and each is the first in some rounds. Runs are in a file, as they are by
// default. The medians count:
//
//   - with and hanging are how many times as fast runs are accepted as without progress;
//   - posted is how many texts a second were posted with progress.
func BenchmarkProgress(b *testing.B) {
	var posted atomic.Int64
	start := func(hangs bool) string {
		gone := make(chan struct{})
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if hangs {
				select {
				case <-r.Context().Done():
				case <-gone:
				}
				return
			}
			posted.Add(1)
			_, _ = io.WriteString(w, `{"ok":true,"channel":"C123","ts":"1794808288.000016","user_id":"U1","bot_id":"B1"}`)
		}))
		b.Cleanup(func() { close(gone); service.CloseClientConnections(); service.Close() })
		return service.URL
	}
	instances := []string{"without", "with", "hanging"}
	quick, hanging := start(false), start(true)
	site := ""
	for _, instance := range instances {
		url, progress := quick, "progress \"Working on it …\"\n"
		switch instance {
		case "without":
			progress = ""
		case "hanging":
			url = hanging
		}
		site += "hooks " + instance + " {\npath /" + instance + "\nenabled\ntoken " + hookstest.Token + "\nqueue_limit 100000000\nrunner echo\n" +
			"drain_timeout 1ms\nstore bolt " + b.TempDir() + "/hooks.db\nchannel team slack xoxb-1 {\nurl " + url + "\n}\n" +
			"hook bot {\naction agent\ntemplate {text}\ndeliver team C123\n" + progress + "}\n}\n"
	}
	s := hookstest.StartSite(b, site)
	const clients, rounds = 16, 15
	share := max(b.N/rounds/len(instances), 1)
	turn := func(instance string) float64 {
		request := rawRequest(s, "/"+instance+"/bot", "Authorization: Bearer "+hookstest.Token+"\r\n", `{"text":"the disk of web-3 is 91 % full"}`)
		took, _ := hammer(b, s, request, "202", clients, share)
		return took.Seconds()
	}
	ratios := make(map[string][]float64)
	begin := time.Now()
	for round := range rounds {
		took := make(map[string]float64)
		for i := range instances {
			instance := instances[(round+i)%len(instances)]
			took[instance] = turn(instance)
		}
		for _, instance := range instances[1:] {
			ratios[instance] = append(ratios[instance], took["without"]/took[instance])
		}
	}
	for _, instance := range instances[1:] {
		slices.Sort(ratios[instance])
		b.ReportMetric(ratios[instance][rounds/2], instance)
	}
	b.ReportMetric(float64(posted.Load())/time.Since(begin).Seconds(), "posted/s")
	b.ReportMetric(0, "ns/op")
}
