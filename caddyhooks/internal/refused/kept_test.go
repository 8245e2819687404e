package refused

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
)

func keptOf(hook, client string, stranger bool, body int) Kept {
	return Kept{Request: refusedOf(hook, client), Method: "POST", Path: "/api/hooks/" + hook, Body: []byte(strings.Repeat("b", body)), Stranger: stranger}
}

func keptHooks(r *Recorder) (hooks []string) {
	for _, request := range r.Requests(context.Background(), func(*Kept) bool { return true }, MaxKept) {
		hooks = append(hooks, request.Hook)
	}
	return hooks
}

func TestRequestsAreKeptForAWhileOnAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, documents := zap.NewNop(), newDocuments()
		first, stopFirst := nodeOn(documents, log)
		second, stopSecond := nodeOn(documents, log)
		if first.Wants("1") {
			t.Error("a request is kept although nobody asked for that")
		}
		first.Keep(time.Hour)
		second.Keep(time.Hour)
		first.KeepRequest(keptOf("a", "1", true, 10))
		if got := keptHooks(first); len(got) != 1 {
			t.Errorf("before it is saved there are %v", got)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		found := second.Requests(t.Context(), func(*Kept) bool { return true }, 10)
		if len(found) != 1 || found[0].ID == "" || string(found[0].Body) != "bbbbbbbbbb" || found[0].Client != "1" || found[0].Path != "/api/hooks/a" {
			t.Errorf("the other node has %+v", found)
		}
		time.Sleep(30 * time.Minute)
		second.KeepRequest(keptOf("b", "1", true, 10))
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(keptHooks(first), keptHooks(second)); got != "[b] [b]" {
			t.Errorf("after an hour there are %s", got)
		}
		if all, _ := documents.Load(t.Context(), requestDocuments); len(all) != 1 {
			t.Errorf("after an hour %d are stored", len(all))
		}
		second.Keep(0)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if all, _ := documents.Load(t.Context(), requestDocuments); len(all) != 0 || len(keptHooks(second)) != 0 {
			t.Errorf("%d are stored although none are to be kept", len(all))
		}
		stopFirst()
		stopSecond()
	})
}

func TestAStrangerPushesNobodyElseOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, documents := zap.NewNop(), newDocuments()
		r, stop := nodeOn(documents, log)
		r.Keep(24 * time.Hour)
		flood := func(seconds int, client func(i int) string, stranger bool, hook string) {
			for i := range seconds * 2 * maxPending {
				if c := client(i); r.Wants(c) {
					r.KeepRequest(keptOf(hook, c, stranger, 100))
				}
				time.Sleep(time.Second / (2 * maxPending))
			}
		}
		flood(20, func(i int) string { return fmt.Sprintf("192.0.2.%d", i%100) }, false, "good")
		flood(60, func(i int) string { return "198.51.100.7" }, true, "one")
		flood(60, func(i int) string { return fmt.Sprintf("2001:db8::%x", i) }, true, "network")
		flood(60, func(i int) string { return fmt.Sprintf("203.0.113.%d", i%250) }, true, "many")
		synctest.Wait()
		counts := make(map[string]int)
		for _, hook := range keptHooks(r) {
			counts[hook]++
		}
		if counts["good"] != MaxKept-maxOfStrangers || counts["many"]+counts["one"]+counts["network"] != maxOfStrangers ||
			counts["one"] > maxOfClient || counts["network"] > maxOfClient {
			t.Errorf("kept are %v", counts)
		}
		stop()
	})
}

func TestKeptRequestsAreBoundedInBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, documents := zap.NewNop(), newDocuments()
		r, stop := nodeOn(documents, log)
		r.Keep(24 * time.Hour)
		for i := range 2 * MaxKept {
			request := keptOf("a", fmt.Sprint(i), false, MaxKeptBody)
			request.Headers = http.Header{"X-Long": {strings.Repeat("h", MaxKeptFields)}}
			r.KeepRequest(request)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		all, _ := documents.Load(t.Context(), requestDocuments)
		size := 0
		for _, document := range all {
			size += len(document.Value)
		}
		if size > MaxKeptBytes || len(all) < 50 {
			t.Errorf("%d requests with %d bytes are kept", len(all), size)
		}
		stop()
	})
}

func testMask(secret string) *Mask {
	return &Mask{
		Mark:        "••••",
		HidesHeader: func(name string) bool { return strings.EqualFold(name, "Authorization") },
		ShowsQuery:  func(name string) bool { return name == "event" },
		HideIn:      func(value string) string { return strings.ReplaceAll(value, secret, "••••") },
	}
}

func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	m := testMask("s3cret")
	headers := m.Headers(http.Header{"Authorization": {"Bearer other", ""}, "X-Event": {"push", "with s3cret inside"}, "X-Long": {strings.Repeat("é", 1000)}, "X-S3cret": nil})
	if fmt.Sprint(headers["Authorization"], headers["X-Event"]) != "[•••• ] [push with •••• inside]" || len(headers.Get("X-Long")) > maxKeptValue || !strings.HasSuffix(headers.Get("X-Long"), "é…") {
		t.Errorf("headers are %v", headers)
	}
	if got := m.Query(url.Values{"token": {"x"}, "event": {"push", "s3cret"}}); got != "event=push&event=%E2%80%A2%E2%80%A2%E2%80%A2%E2%80%A2&token=%E2%80%A2%E2%80%A2%E2%80%A2%E2%80%A2" {
		t.Errorf("the query is %s", got)
	}
	at := MaxKeptBody - 3
	if got, _ := m.Body([]byte(strings.Repeat("x", at) + "s3cret" + strings.Repeat("y", MaxKeptBody))); len(got) != MaxKeptBody || strings.Contains(string(got), "s3c") {
		t.Errorf("the body has %d bytes and ends with %q", len(got), got[at-5:])
	}
}

// Members that hold secrets are found wherever they are. If that cannot be said, nothing is kept.
func TestSecretMembersAreMasked(t *testing.T) {
	t.Parallel()
	m := testMask("s3cret")
	m.Members = []string{"token", "signature"}
	const hidden = "%E2%80%A2%E2%80%A2%E2%80%A2%E2%80%A2"
	long := strings.Repeat("x", MaxKeptBody)
	for body, want := range map[string]string{
		`{"token":"t1","a":"b"}`:                              `{"token":"••••","a":"b"}`,
		` [ {"a": {"token" : {"b":["t1"]} } }, "token" ] `:    ` [ {"a": {"token" : "••••" } }, "token" ] `,
		`{"t\u006fken":"t1","Token":"s3cret"}`:                `{"t\u006fken":"••••","Token":"••••"}`,
		`{"signature":{"token":"t1","signature":"t2"},"n":1}`: `{"signature":"••••","n":1}`,
		`{"token":"` + long + `","a":1}`:                      `{"token":"••••","a":1}`,
		`{"a":1,"token":"t1`:                                  "",
		`{"token":"t1","token":"t2"}`:                         "",
		`{"token":"t1"} {}`:                                   "",
		"\ufeff" + `{"token":"t1"}`:                           "",
		strings.Repeat("[", 200) + `{"token":"t1"}`:           "",
		`token: t1`: "",
		"":          "",
		"--b\r\nContent-Disposition: form-data; name=token\r\n\r\nt1\r\n--b--": "",
		"a=1&token=t1&b=two+words":                        "a=1&token=" + hidden + "&b=two+words",
		"%74oken=t1&&token":                               "%74oken=" + hidden + "&&token=" + hidden,
		"a=1&payload=%7B%22token%22%3A1%2C%22b%22%3A2%7D": "a=1&payload=" + url.QueryEscape(`{"token":"••••","b":2}`),
		"payload=%7B%22token%22%3A%22t1":                  "payload=" + hidden,
		"token=t1&a=%zz":                                  "",
		"token=t1&a=" + long + long:                       "token=" + hidden + "&a=" + long[:MaxKeptBody-len("token=&a=")-len(hidden)],
	} {
		got, ok := m.Body([]byte(body))
		if string(got) != want || ok != (want != "" || body == "") {
			t.Errorf("of %.80q\nis kept %.80q, %v\nwant    %.80q", body, got, ok, want)
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add("X-Event", "push", "event=a&token=b", []byte(`{"a":1}`))
	f.Add("authorization", "Bearer s3cret-token", "s3cret-token=s3cret-token", []byte("s3cret-token"))
	f.Add("\xff", strings.Repeat("s3cret-token", 1000), "event=s3cret-token\xff;%zz", []byte(strings.Repeat("s3cret-token\x00", 1000)))
	f.Fuzz(func(t *testing.T, name, value, rawQuery string, body []byte) {
		const secret = "s3cret-token"
		m := testMask(secret)
		headers := m.Headers(http.Header{name: {value, secret + value}, "Authorization": {value}, "Other": {value + secret}})
		size := 0
		for name, values := range headers {
			size += len(name)
			for _, value := range values {
				size += len(value)
				if strings.Contains(value, secret) || !utf8.ValidString(value) || strings.EqualFold(name, "Authorization") && value != "" && value != m.Mark {
					t.Errorf("%q is kept of %q", value, name)
				}
			}
			if strings.Contains(name, secret) || !utf8.ValidString(name) {
				t.Errorf("the name %q is kept", name)
			}
		}
		if size > MaxKeptFields {
			t.Errorf("%d bytes of headers are kept", size)
		}
		query, _ := url.ParseQuery(rawQuery)
		kept, err := url.ParseQuery(m.Query(query))
		if err != nil {
			t.Error(err)
		}
		for name, values := range kept {
			if joined := strings.Join(append(values, name), " "); strings.Contains(joined, secret) {
				t.Errorf("%q is kept", joined)
			}
		}
		if got, ok := m.Body(body); !ok || len(got) > MaxKeptBody || strings.Contains(string(got), secret) {
			t.Errorf("%q is kept of the body", got)
		}
		// Where the secrets of a body are is known, or nothing is kept.
		m.Members = []string{"token"}
		got, ok := m.Body(body)
		if !ok && got != nil || len(got) > MaxKeptBody || strings.Contains(string(got), secret) {
			t.Errorf("%q is kept of the body with members", got)
		}
		quoted, _ := json.Marshal(value)
		for _, sent := range []string{
			`{"a":[` + string(quoted) + `,{"t\u006fken":"0-0-0"}]}`, "a=" + url.QueryEscape(value) + "&%74oken=0-0-0", string(body) + `{"token":"0-0-0"}`,
		} {
			if got, _ := m.Body([]byte(sent)); strings.Contains(string(got), "0-0-0") && !strings.Contains(string(body)+value, "0-0-0") {
				t.Errorf("%q is kept of %q", got, sent)
			}
		}
	})
}
