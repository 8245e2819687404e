package caddyhooks_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// adminPage reads a page of the admin API.
func adminPage[T any](s *hookstest.Server, path string) (page T) {
	s.T.Helper()
	resp := s.AdminRequest("GET", path, "")
	if err := json.Unmarshal([]byte(resp.Body), &page); err != nil || resp.Status != 200 {
		s.T.Fatalf("GET %s: %d %s", path, resp.Status, resp.Body)
	}
	return page
}

// runRow is what a list tells of a run beyond what callers see.
type runRow struct {
	RunID      string         `json:"runId"`
	Status     string         `json:"status"`
	AcceptedAt time.Time      `json:"acceptedAt"`
	Preview    string         `json:"preview"`
	Tier       string         `json:"tier"`
	Test       bool           `json:"test"`
	Sync       bool           `json:"sync"`
	SentOut    map[string]int `json:"sentOut"`
}

type runPage struct {
	Runs       []runRow   `json:"runs"`
	Cursor     string     `json:"cursor"`
	SearchedTo *time.Time `json:"searchedTo"`
}

func TestRunsAreSelectedByStatusesHooksTimeAndWords(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn, _, release := hookstest.HeldRunner(t)
			s := hookstest.StartSite(t, hookstest.Hooks(rn, "store "+store+"\n hook custom {\n action agent\n template \"{a}\"\n }"))
			defer close(release) // Caddy need not wait for the held turn when it stops
			first := s.Accept(`{"message":"The first Message","chatId":"team/one"}`)
			s.Ended(first)
			failed := s.Accept(`{"message":"fail"}`)
			s.Ended(failed)
			custom := s.Post("/api/hooks/custom", `{"a":"from a hook"}`).Field(t, "runId").(string)
			s.Ended(custom)
			running := s.Accept(`{"message":"hold","chatId":"two"}`)
			hookstest.Eventually(t, "it runs", func() bool { return s.Run(running).Status == "running" })
			at := func(id string) time.Time { return s.Run(id).AcceptedAt }

			for query, want := range map[string][]string{
				"?status=failed,running":             {running, failed},
				"?status=failed,+running":            {running, failed},
				"?hook=custom,agent":                 {running, custom, failed, first},
				"?hook=custom,none":                  {custom},
				"?since=1h":                          {running, custom, failed, first},
				"?since=0s":                          nil,
				"?until=1h":                          nil,
				"?since=1d&until=0s":                 {running, custom, failed, first},
				"?since=2001-02-03T04:05:06+02:00":   {running, custom, failed, first}, // with a plus sign that is not escaped
				"?until=2001-02-03T04:05:06%2B02:00": nil,
				"?since=yesterday":                   {running, custom, failed, first},
				"?until=yesterday":                   nil,
				"?since=2001-02-03+04:05&until=0s":   {running, custom, failed, first},
				"?until=2001-02-03":                  nil,
				"?q=MESSAGE+first":                   {first},
				"?q=+message+":                       {first},
				"?q=TEAM/ONE":                        {first},
				"?q=nobody+said+that":                nil,
				"?q=message&hook=custom":             nil,
				"?q=" + custom:                       {custom},
				"?q=" + strings.ToUpper(custom):      {custom},
				"?q=" + custom[:30]:                  {custom},
				"?q=20260131":                        nil,
			} {
				if ids, cursor := s.Listed(query); !slices.Equal(ids, want) || cursor != "" {
					t.Errorf("%s: got %v and the cursor %q, want %v", query, ids, cursor, want)
				}
			}
			// All of them begin alike, since they were accepted within a minute or so.
			if ids, _ := s.Listed("?q=" + first[:8]); !slices.Contains(ids, first) {
				t.Errorf("the beginning of an id finds %v", ids)
			}
			// The millisecond of the failed run: since is inclusive, until is not.
			moment := at(failed).Format(time.RFC3339Nano)
			if ids, _ := s.Listed("?since=" + moment); !slices.Contains(ids, failed) || slices.Contains(ids, first) != at(first).Equal(at(failed)) {
				t.Errorf("since %s: got %v", moment, ids)
			}
			if ids, _ := s.Listed("?until=" + moment); slices.Contains(ids, failed) {
				t.Errorf("until %s: got %v", moment, ids)
			}
			for query, word := range map[string]string{
				"?status=failed,done": "status", "?status=failed,": "status", "?hook=a,,b": "hook", "?since=tomorrow": "10:00, today, yesterday", "?since=-1h": "since",
				"?until=2026-02-30": "until must be a time", "?since=1h&until=2h": "before until", "?q=" + strings.Repeat("x", 300): "q must",
				"?hook=" + strings.Repeat("x", 9000): "hook must",
			} {
				s.AdminRequest("GET", "/hooks/runs"+query, "").WantAdminError(t, 400, word)
			}
		})
	}
}

func TestASearchTellsHowFarItGot(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	var ids []string
	for range 3 {
		ids = append(ids, s.Accept(`{"message":"words"}`))
		s.Ended(ids[len(ids)-1])
	}
	page := adminPage[runPage](s, "/hooks/runs?q=words&limit=2")
	if len(page.Runs) != 2 || page.SearchedTo == nil || page.SearchedTo.Sub(page.Runs[1].AcceptedAt).Abs() > time.Minute {
		t.Errorf("got %+v, want that it searched to %s", page, page.Runs[1].AcceptedAt)
	}
	page = adminPage[runPage](s, "/hooks/runs?q=words&limit=2&cursor="+page.Cursor)
	if len(page.Runs) != 1 || page.Cursor != "" || page.SearchedTo != nil {
		t.Errorf("the last page is %+v", page)
	}
	if page := adminPage[runPage](s, "/hooks/runs?limit=2"); page.Cursor == "" || page.SearchedTo != nil {
		t.Errorf("a list is %+v", page)
	}
}

func TestFewSearchesAreMadeAtOnce(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nstore memory\n}")
	free := caddyhooks.HoldSearches("default")
	for _, path := range []string{"/hooks/runs?q=a", "/hooks/chats?q=a", "/hooks/export?of=runs&q=a"} {
		resp := s.AdminRequest("GET", path, "")
		resp.WantAdminError(t, 503, "2 searches are under way already; try again")
		if resp.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
		}
	}
	if resp := s.AdminRequest("GET", "/hooks/runs", ""); resp.Status != 200 {
		t.Errorf("a list is answered %d", resp.Status)
	}
	free()
	for range 5 { // each gives its slot back
		if resp := s.AdminRequest("GET", "/hooks/runs?q=a", ""); resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	}
}

func TestRowsTellWhatOperatorsLookFor(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	rc := startMoodyReceiver(t, "")
	run := s.CallBack("dead", rc.URL)
	hookstest.Eventually(t, "the delivery is given up", func() bool { return len(s.Deliveries("status=dead")) == 1 })
	long := strings.Repeat("ü", 200)
	for _, c := range []struct{ send, path, preview string }{
		{`{"message":"\n \t\n  first\u0000line  \nsecond line","model":"smart","syncResponse":true}`, "agent", "first line"},
		{`{"message":"` + long + `"}`, "agent", strings.Repeat("ü", 159) + "…"},
		{`{"message":"` + long[:320] + `"}`, "agent", strings.Repeat("ü", 160)},
		{`{"text":"from outside\nand more"}`, "wake", "from outside"},
		{`{"message":"{\n  \"a\": [\n    1\n  ]\n}"}`, "agent", `{ "a": [ 1 ] }`},
		{`{"message":"---\n` + long + `"}`, "agent", "--- " + strings.Repeat("ü", 155) + "…"},
		{`{"message":"!?"}`, "agent", "!?"},
	} {
		s.Post("/api/hooks/"+c.path, c.send)
		if row := adminPage[runPage](s, "/hooks/runs?limit=1").Runs[0]; row.Preview != c.preview {
			t.Errorf("%.60s: the preview is %q, want %q", c.send, row.Preview, c.preview)
		}
	}
	rows := adminPage[runPage](s, "/hooks/runs").Runs
	oldest, smart := rows[len(rows)-1], rows[len(rows)-2]
	if oldest.RunID != run || oldest.SentOut["dead"] != 1 || oldest.SentOut["delivered"] != 0 || oldest.SentOut["pending"] != 0 || oldest.Sync || oldest.Tier != "" {
		t.Errorf("got %+v", oldest)
	}
	if !smart.Sync || smart.Tier != "smart" || smart.SentOut != nil || smart.Test {
		t.Errorf("got %+v", smart)
	}
	hookstest.Eventually(t, "all runs have ended", func() bool { return len(adminPage[runPage](s, "/hooks/runs?status=queued,running").Runs) == 0 })
	s.PatchSettings(`{"historySeconds":0}`)
	hookstest.Eventually(t, "messages are forgotten", func() bool { return adminPage[runPage](s, "/hooks/runs?limit=1").Runs[0].Preview == "" })
}

func TestDetailsOfARun(t *testing.T) {
	s := hookstest.StartSite(t, `hooks {
		enabled
		token `+hookstest.Token+`
		runner echo
		queue_time 2h
		history 1h
		callbacks {
			allow 127.0.0.0/8
			ports *
		}
		hook short {
			action agent
			history 10m
		}
	}`)
	rc := startMoodyReceiver(t, "")
	id := s.Accept(`{"message":"hello","model":"smart","memoryPreset":"general_chat","timeoutSeconds":7,"callbackUrl":"`+rc.URL+`/path?secret"}`,
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	finished := s.Ended(id).FinishedAt
	hookstest.Eventually(t, "the delivery is given up", func() bool { return len(s.Deliveries("status=dead")) == 1 })
	resp := s.AdminRequest("GET", "/hooks/runs/"+id, "")
	resp.WantMembers(t, `{"tier":"smart","memoryPreset":"general_chat","timeoutSeconds":7,"queueTimeSeconds":7200,"message":"hello","reply":"hello",
		"traceParent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","sync":null,"test":null,"preview":null,"sentOut":{"delivered":0,"pending":0,"dead":1}}`)
	var details struct {
		KeptUntil  time.Time                `json:"keptUntil"`
		Deliveries []hookstest.DeliveryView `json:"deliveries"`
	}
	if err := json.Unmarshal([]byte(resp.Body), &details); err != nil {
		t.Fatal(err)
	}
	if !details.KeptUntil.Equal(finished.Add(time.Hour)) {
		t.Errorf("kept until %s, and finished at %s", details.KeptUntil, finished)
	}
	if listed := s.Deliveries("status=dead"); len(details.Deliveries) != 1 || details.Deliveries[0] != listed[0] {
		t.Errorf("the deliveries are %+v, and listed as %+v", details.Deliveries, listed)
	}
	short := s.Post("/api/hooks/short", `{}`).Field(t, "runId").(string)
	finished = s.Ended(short).FinishedAt
	if got, want := s.AdminRequest("GET", "/hooks/runs/"+short, "").Field(t, "keptUntil"), finished.Add(10*time.Minute).Format("2006-01-02T15:04:05.999Z07:00"); got != want {
		t.Errorf("kept until %v, want %s", got, want)
	}
	// Callers are told none of this.
	s.Run(id).WantFields(t, "startedAt", "finishedAt", "reply", "deliveries")
}

func TestHiddenTextsAreInNoList(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	s.Ended(s.Accept(`{"message":"private words","chatId":"c"}`))
	s.PutMapping("any", `{"action":"agent"}`)
	s.Post("/api/hooks/any", `{"private": "words"}`)
	for _, hide := range []bool{false, true} {
		api := httptest.NewServer(caddyhooks.AdminAPI(hide))
		defer api.Close()
		for _, path := range []string{"/runs", "/chats", "/chat?chatId=c", "/export?of=runs", "/export?of=chat&chatId=c", "/samples?hook=any"} {
			for _, accept := range []string{"*/*", "text/csv"} {
				resp, err := hookstest.TryRequest("GET", api.URL+"/hooks"+path, "", "Accept", accept)
				if err != nil || resp.Status != 200 {
					t.Fatalf("%s: %v, %d %s", path, err, resp.Status, resp.Body)
				}
				if strings.Contains(resp.Body, "private") == hide {
					t.Errorf("hidden: %t, and %s shows %s", hide, path, resp.Body)
				}
			}
		}
	}
}

// The reason of a failure may quote what the agent answered.
func TestReasonsAreHiddenWithTheTexts(t *testing.T) {
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
		w.WriteHeader(500)
		_, _ = io.WriteString(w, "private words")
	})
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	id := s.Accept(`{"message":"a","chatId":"c"}`)
	s.Ended(id)
	for _, hide := range []bool{false, true} {
		api := httptest.NewServer(caddyhooks.AdminAPI(hide))
		defer api.Close()
		for path, shown := range map[string]bool{"/runs": !hide, "/chat?chatId=c": !hide, "/export?of=runs": !hide, "/export?of=chat&chatId=c": !hide, "/runs/" + id: true} {
			resp, err := hookstest.TryRequest("GET", api.URL+"/hooks"+path, "")
			if err != nil || resp.Status != 200 || strings.Contains(resp.Body, "private") != shown {
				t.Errorf("hidden: %t, and %s shows %d %s, %v", hide, path, resp.Status, resp.Body, err)
			}
		}
	}
}
