package intake

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// keepsAll are settings under which samples of some hooks are kept.
func keepsAll(hooks ...string) *settings.Active {
	active := &settings.Active{History: time.Hour, Hooks: make(map[string]*settings.Hook)}
	for _, name := range hooks {
		h := &settings.Hook{Mapping: settings.Mapping{Name: name, Only: []string{"header X-Many", "header X-Small", "header X-Large"}}}
		if err := h.ParseTemplates(); err != nil {
			panic(err)
		}
		active.Hooks[name] = h
	}
	return active
}

func samplePayloads(s *Samples, hook string) string {
	var all []string
	for _, sample := range s.Of(hook) {
		all = append(all, string(sample.Payload))
	}
	return strings.Join(all, " ")
}

func TestTheLastPayloadsAreSampled(t *testing.T) {
	t.Parallel()
	var s Samples
	s.Follow(keepsAll("a"))
	header := http.Header{"Content-Type": {"application/json" + strings.Repeat("x", 1000)}}
	now := time.Now()
	for i := range 12 {
		payload := []byte(fmt.Sprint(i))
		s.noteAt(now, "a", header, nil, payload)
		payload[0] = 'x' // which belongs to the request
		s.noteAt(now.Add(999*time.Millisecond), "a", header, nil, []byte("too soon"))
		now = now.Add(time.Second)
	}
	if got := samplePayloads(&s, "a"); got != "11 10 9 8 7 6 5 4 3 2" {
		t.Errorf("the samples are %s", got)
	}
	s.noteAt(now, "a", header, nil, bytes.Repeat([]byte("x"), maxSample+1))
	s.noteAt(now, "unknown", header, nil, []byte("x"))
	if got := samplePayloads(&s, "a") + samplePayloads(&s, "unknown"); got != "11 10 9 8 7 6 5 4 3 2" {
		t.Errorf("the samples are %.100s", got)
	}
	s.noteAt(now, "a", header, nil, bytes.Repeat([]byte("x"), maxSample))
	s.noteAt(now.Add(-time.Hour), "a", header, nil, []byte("the clock was set back"))
	s.noteAt(now.Add(-time.Hour), "a", header, nil, []byte("too soon"))
	all := s.Of("a")
	if string(all[0].Payload) != "the clock was set back" || len(all[1].Payload) != maxSample || len(all[0].ContentType) > maxContentType {
		t.Errorf("the samples are %.200s", samplePayloads(&s, "a"))
	}
}

// However large the payloads are, the samples of a hook take no more than sampleBytes.
func TestSamplesOfAHookAreBounded(t *testing.T) {
	t.Parallel()
	var s Samples
	s.Follow(keepsAll("a"))
	now := time.Now()
	header := http.Header{"X-Large": {strings.Repeat("x", maxSampleFields)}, "X-Middle": {strings.Repeat("x", maxSampleFields/2)},
		"X-Small": {"x"}}
	for range 12 {
		s.noteAt(now, "a", header, nil, bytes.Repeat([]byte("x"), maxSample/2))
		now = now.Add(time.Second)
	}
	all, total := s.Of("a"), 0
	for _, one := range all {
		total += len(one.Payload)
		for name, values := range one.Header {
			total += len(name) + len(values[0])
		}
	}
	if len(all) != 5 || total > sampleBytes || all[0].Header.Get("X-Large") != "" || all[0].Header.Get("X-Small") != "x" {
		t.Errorf("%d samples have %d bytes, with the headers %.200v", len(all), total, all[0].Header)
	}
}

func TestSamplesHaveNoSecrets(t *testing.T) {
	t.Parallel()
	active := keepsAll("a")
	h := active.Hooks["a"]
	h.AuthMode, h.HMACHeader = "hmac", "X-Proof"
	h.Hidden = h.HiddenHeaders()
	var s Samples
	s.Follow(active)
	header := http.Header{"X-Github-Event": {"issues"}, "X-Many": {"1", "2"}}
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Service-Token", "X-Proof", "X-Gitlab-Token",
		"X-Hub-Signature-256", "X-Api-Key", "Idempotency-Key", "X-Other", "X-Event-Token"} {
		header.Set(name, "s3cret")
	}
	query := url.Values{"team": {"a", "b"}, "access_token": {"s3cret"}, "sig": {"s3cret"}, "secret": {"s3cret"}, "apikey": {"s3cret"}}
	s.Note("a", header, func() url.Values { return query }, []byte("{}"))
	kept := s.Of("a")[0]
	if strings.Contains(fmt.Sprint(kept.Header, kept.Query), "s3cret") {
		t.Errorf("kept are %v and %v", kept.Header, kept.Query)
	}
	if len(kept.Header) != 2 || len(kept.Header["X-Many"]) != 2 || kept.Query.Encode() != "team=a&team=b" {
		t.Errorf("kept are %v and %v", kept.Header, kept.Query)
	}
}

func TestSamplesAreForgottenWithTheHistory(t *testing.T) {
	t.Parallel()
	var s Samples
	fill := func() {
		s.Follow(keepsAll("a", "b", "c"))
		for _, name := range []string{"a", "b", "c"} {
			s.Note(name, http.Header{}, nil, []byte(name))
		}
	}
	shown := func() string {
		return strings.Join(strings.Fields(samplePayloads(&s, "a")+" "+samplePayloads(&s, "b")+" "+samplePayloads(&s, "c")), " ")
	}
	fill()
	if got := shown(); got != "a b c" {
		t.Fatalf("there are samples of %s", got)
	}
	none := 0
	off := keepsAll("a", "b", "c")
	off.Hooks["a"].HistorySeconds = &none
	s.Follow(off)
	if got := shown(); got != "b c" {
		t.Errorf("with the history of one hook off there are samples of %s", got)
	}
	s.Note("a", http.Header{}, nil, []byte("of a request that was under way"))
	if got := shown(); got != "b c" {
		t.Errorf("with the history of one hook off there are samples of %s", got)
	}
	s.Follow(keepsAll("a", "c"))
	if got := shown(); got != "c" {
		t.Errorf("without one hook there are samples of %s", got)
	}
	fill()
	off = keepsAll("a", "b", "c")
	off.History = 0
	s.Follow(off)
	s.Note("c", http.Header{}, nil, []byte("of a request that was under way"))
	if got := shown(); got != "" {
		t.Errorf("with the history off there are samples of %s", got)
	}
}

func TestSamplesOfManyHooksAreBounded(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprint("hook-", i))
	}
	var s Samples
	s.Follow(keepsAll(names...))
	now := time.Now()
	for _, name := range names {
		s.noteAt(now, name, nil, nil, []byte(name))
		now = now.Add(time.Second)
	}
	if n := len(*s.ByHook.Load()); n != sampledHooks {
		t.Errorf("%d hooks have samples", n)
	}
	if got := samplePayloads(&s, names[199]) + samplePayloads(&s, names[200-sampledHooks]) +
		samplePayloads(&s, names[199-sampledHooks]); got != names[199]+names[200-sampledHooks] {
		t.Errorf("the last ones are not those that are kept: %s", got)
	}
	// However many hooks there are, no more than one a second takes the place of another one.
	for _, name := range names[:100] {
		s.noteAt(now, name, nil, nil, []byte(name))
	}
	kept := 0
	for _, name := range names[:100] {
		kept += len(s.Of(name))
	}
	if kept != 1 {
		t.Errorf("%d hooks took the place of others at once", kept)
	}
}

// Most requests are accepted without a sample, and that must cost next to nothing.
func TestARequestThatIsNotSampledCostsNoMemory(t *testing.T) {
	var s Samples
	s.Follow(keepsAll("a"))
	header, payload := http.Header{"Content-Type": {"application/json"}}, []byte(`{"a":1}`)
	now := time.Now()
	s.noteAt(now, "a", header, nil, payload)
	if n := testing.AllocsPerRun(1000, func() { s.noteAt(now, "a", header, nil, payload) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRequestThatIsNotSampled(b *testing.B) {
	var s Samples
	s.Follow(keepsAll("a"))
	header, payload := http.Header{"Content-Type": {"application/json"}}, []byte(`{"a":1}`)
	later := time.Now().Add(time.Hour)
	s.noteAt(later, "a", header, nil, payload)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.noteAt(later, "a", header, nil, payload)
			_ = time.Now() // which note asks for
		}
	})
}
