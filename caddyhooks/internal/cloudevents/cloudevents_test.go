package cloudevents

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func whole() *strictjson.Selection {
	s := new(strictjson.Selection)
	s.SelectAll()
	return s
}

func headers(lines ...string) http.Header {
	header := make(http.Header)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		header.Add(name, value)
	}
	return header
}

// shown is the first event of a request as JSON.
func shown(t *testing.T, read Request, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	made, err := json.Marshal(read.Events[0].Doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(made)
}

const (
	attributes = `"specversion":"1.0","id":"1","source":"/a","type":"t"`
	structured = "Content-Type: application/cloudevents+json"
	batched    = "Content-Type: application/cloudevents-batch+json"
)

var binary = []string{"ce-specversion: 1.0", "ce-id: 1", "CE-Source: /a", "ce-type: t"}

func TestEventIsTheSameInEveryMode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		headers []string
		body    string
		want    string // beside the attributes that every event has
	}{
		{"structured", []string{structured + "; charset=UTF-8"}, `{` + attributes + `,"subject":"s","data":{"n":1.0}}`, `"data":{"n":1.0},"subject":"s"`},
		{"null is absent", []string{structured}, `{` + attributes + `,"subject":null,"ext":null,"data_base64":null,"data":null}`, `"data":null`},
		{"extensions", []string{structured}, `{` + attributes + `,"event_id":"x","n":7,"on":true}`, `"event_id":"x","n":7,"on":true`},
		{"bytes", []string{structured}, `{` + attributes + `,"data_base64":"AP8="}`, `"data_base64":"AP8="`},
		{"bytes, and no data", []string{structured}, `{` + attributes + `,"data":null,"data_base64":"AP8="}`, `"data_base64":"AP8="`},
		{"binary JSON", append(binary, "Content-Type: application/json", "Ce-Subject: s"), `{"n":1.0}`,
			`"data":{"n":1.0},"datacontenttype":"application/json","subject":"s"`},
		{"binary JSON by its suffix", append(binary, "Content-Type: application/vnd.a+json"), `[1]`,
			`"data":[1],"datacontenttype":"application/vnd.a+json"`},
		{"binary text", append(binary, "Content-Type: text/plain; charset=utf-8"), "é", `"data":"é","datacontenttype":"text/plain; charset=utf-8"`},
		{"binary text of another charset", append(binary, "Content-Type: text/plain; charset=latin1"), "\xe9",
			`"data_base64":"6Q==","datacontenttype":"text/plain; charset=latin1"`},
		{"binary text that is none", append(binary, "Content-Type: text/plain"), "\xff", `"data_base64":"/w==","datacontenttype":"text/plain"`},
		{"binary bytes", append(binary, "Content-Type: image/png"), "\x00\xff", `"data_base64":"AP8=","datacontenttype":"image/png"`},
		{"binary without a content type", binary, "{}", `"data_base64":"e30="`},
		{"binary without data", binary, "", ``},
		{"percent-encoded", append(binary, "ce-ext: Euro%20%E2%82%AC%20%F0%9F%98%80 100% %zz%"), "", `"ext":"Euro € 😀 100% %zz%"`},
		{"encoded once", append(binary, "ce-ext: %2541"), "", `"ext":"%41"`},
		{"quoted", append(binary, `ce-ext: "a \"b\" %43"`), "", `"ext":"a \"b\" C"`},
		{"the content type is the header", append(binary, "Content-Type: text/plain", "ce-datacontenttype: x"), "a", `"data":"a","datacontenttype":"text/plain"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			read, err := Read(headers(c.headers...), []byte(c.body), whole(), 10, nil)
			got := shown(t, read, err)
			var want, have any
			if c.want != "" {
				c.want = "," + c.want
			}
			if err := json.Unmarshal([]byte(`{`+attributes+c.want+`}`), &want); err != nil {
				t.Fatal(err)
			}
			_ = json.Unmarshal([]byte(got), &have)
			if fmt.Sprint(want) != fmt.Sprint(have) {
				t.Errorf("got %s", got)
			}
			if (read.Events[0].ID != ID{"/a", "1"}) || read.IsBatch || len(read.Events) != 1 {
				t.Errorf("got %+v", read)
			}
		})
	}
}

func TestBatch(t *testing.T) {
	t.Parallel()
	event := func(id string) string { return `{"specversion":"1.0","id":"` + id + `","source":"/a","type":"t"}` }
	for _, c := range []struct {
		ids, want string
		err       error
	}{
		{"", "", nil}, {"1", "1", nil}, {"212", "21", nil}, {"321", "321", nil},
		{"1234", "", ErrTooManyEvents}, {"1112", "", ErrTooManyEvents}, // nothing is left out in silence
	} {
		var all []string
		for _, id := range c.ids {
			all = append(all, event(string(id)))
		}
		read, err := Read(headers(batched), []byte("["+strings.Join(all, ",")+"]"), nil, 3, nil)
		got := ""
		for _, event := range read.Events {
			got += event.ID.ID
		}
		if !errors.Is(err, c.err) || got != c.want || read.IsBatch != (err == nil) {
			t.Errorf("a batch of %s gives %q, %v", c.ids, got, err)
		}
	}
}

func TestUnselectedDataTakesNoMemory(t *testing.T) {
	t.Parallel()
	selected := new(strictjson.Selection).Paths("data.a")
	const want = `{"data":{"a":1},"ext":"x","id":"1","source":"/a","specversion":"1.0","type":"t"`
	read, err := Read(headers(structured), []byte(`{`+attributes+`,"ext":"x","data":{"a":1,"b":[2]}}`), selected, 1, nil)
	if got := shown(t, read, err); got != want+`}` {
		t.Errorf("structured: %s", got)
	}
	read, err = Read(headers(append(binary, "Ce-Ext: x", "Content-Type: text/json")...), []byte(`{"a":1,"b":[2]}`), selected, 1, nil)
	if got := shown(t, read, err); strings.Replace(got, `"datacontenttype":"text/json",`, "", 1) != want+`}` {
		t.Errorf("binary: %s", got)
	}
	read, err = Read(headers(append(binary, "Content-Type: image/png")...), []byte{1}, selected, 1, nil)
	if got := shown(t, read, err); strings.Contains(got, "base64") {
		t.Errorf("bytes: %s", got)
	}
}

func TestWhatIsNoEventIsRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", maxValue+1)
	var many []string
	for i := range maxAttributes {
		many = append(many, fmt.Sprintf(`"e%d":1`, i))
	}
	manyHeaders := binary
	for i := range maxAttributes {
		manyHeaders = append(manyHeaders, fmt.Sprintf("ce-e%d: 1", i))
	}
	with := func(more string) string { return `{` + attributes + `,` + more + `}` }
	for _, c := range []struct {
		name    string
		headers []string
		body    string
		isType  bool
		words   string
	}{
		{"plain JSON", []string{"Content-Type: application/json"}, `{` + attributes + `}`, false, "no headers begin with ce-"},
		{"no content type", nil, `{` + attributes + `}`, false, "no headers begin with ce-"},
		{"another format", []string{"Content-Type: application/cloudevents+avro"}, "", true, "are accepted"},
		{"a content type that is none", append(binary, "Content-Type: ;;"), "", true, "cannot be read"},
		{"another charset", []string{structured + "; charset=latin1"}, "{}", true, "UTF-8"},
		{"two content types", []string{structured, "Content-Type: application/json"}, `{` + attributes + `}`, false, "more than once"},
		{"no JSON", []string{structured}, `{`, false, "byte"},
		{"a key twice", []string{structured}, `{` + attributes + `,"id":"2"}`, false, "twice"},
		{"an array", []string{structured}, `[]`, false, "must be an object"},
		{"a batch that is an object", []string{batched}, `{` + attributes + `}`, false, "array of events"},
		{"a batch with a bad event", []string{batched}, `[{` + attributes + `},{}]`, false, "event 2: the attribute specversion is missing"},
		{"an old version", []string{structured}, strings.Replace(`{`+attributes+`}`, "1.0", "0.3", 1), false, "must be 1.0"},
		{"a version that is a number", []string{structured}, strings.Replace(`{`+attributes+`}`, `"1.0"`, "1.0", 1), false, "specversion must be a text"},
		{"an empty id", []string{structured}, strings.Replace(`{`+attributes+`}`, `"1",`, `"",`, 1), false, "id must be a text that is not empty"},
		{"no type", []string{structured}, strings.Replace(`{`+attributes+`}`, `"type"`, `"kind"`, 1), false, "type is missing"},
		{"no source", []string{structured}, strings.Replace(`{`+attributes+`}`, `"/a"`, `null`, 1), false, "source is missing"},
		{"an empty subject", []string{structured}, with(`"subject":""`), false, "subject must be a text"},
		{"a time that is none", []string{structured}, with(`"time":"yesterday"`), false, "2026-01-02"},
		{"an extension that is an object", []string{structured}, with(`"ext":{}`), false, "ext must be"},
		{"an extension that is an array", []string{structured}, with(`"ext":[1]`), false, "ext must be"},
		{"data twice", []string{structured}, with(`"data":"","data_base64":""`), false, "both"},
		{"no base64", []string{structured}, with(`"data_base64":"?"`), false, "not base64"},
		{"bytes that are no text", []string{structured}, with(`"data_base64":7`), false, "not base64"},
		{"a control character", []string{structured}, with(`"ext":"a\nb"`), false, "control"},
		{"a long value", []string{structured}, with(`"ext":"` + long + `"`), false, "4096 bytes"},
		{"a long name", []string{structured}, with(`"` + long + `":1`), false, "64 bytes"},
		{"many attributes", []string{structured}, with(strings.Join(many, ",")), false, "64 attributes"},
		{"many headers", manyHeaders, "", false, "64 attributes"},
		{"a header twice", append(binary, "ce-id: 1"), "", false, "ce-id stands more than once"},
		{"a header without a name", append(binary, "ce-: 1"), "", false, "no attribute"},
		{"data in a header", append(binary, "ce-data: 1"), "", false, "no attribute"},
		{"an empty header", append(binary[1:], "ce-specversion: "), "", false, "specversion must be a text that is not empty"},
		{"a header that is missing", binary[1:], "", false, "specversion is missing"},
		{"a control character in a header", append(binary, "ce-ext: a%0Ab"), "", false, "control"},
		{"no UTF-8 in a header", append(binary, "ce-ext: %FF"), "", false, "UTF-8"},
		{"an open quote", append(binary, `ce-ext: "a`), "", false, "quotes"},
		{"a long header", append(binary, "ce-ext: "+long), "", false, "4096 bytes"},
		{"data that is no JSON", append(binary, "Content-Type: application/json"), "{", false, "byte"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(headers(c.headers...), []byte(c.body), nil, 10, nil)
			var wrong *Error
			if err == nil || !strings.Contains(err.Error(), c.words) || (errors.As(err, &wrong) && wrong.IsType) != c.isType {
				t.Errorf("got %v", err)
			}
		})
	}
}

// An event that is accepted has all that its readers rely on, and is the same event if it is sent structured.
func FuzzRead(f *testing.F) {
	f.Add("application/cloudevents+json", "", "", `{`+attributes+`,"data":{"a":[1]}}`)
	f.Add("application/cloudevents-batch+json", "", "", `[{`+attributes+`},{`+attributes+`,"data_base64":"AA=="}]`)
	f.Add("application/json", "/a%20b", `"q\"%E2%82%AC"`, `{"a":1}`)
	f.Add("text/plain; charset=utf-8", "/a", "%zz%4", "é")
	f.Add("image/png", "/a", "x", "\x00\xff")
	f.Add("", "/a", "x", "")
	f.Fuzz(func(t *testing.T, contentType, source, ext, body string) {
		header := http.Header{"Content-Type": {contentType}}
		if source != "" {
			header = headers("ce-specversion: 1.0", "ce-id: 1", "ce-type: t", "ce-source: "+source, "ce-ext: "+ext, "Content-Type: "+contentType)
		}
		read, err := Read(header, []byte(body), whole(), 3, nil)
		if err != nil {
			return
		}
		if n := len(read.Events); n > 3 || n != 1 && !read.IsBatch {
			t.Fatalf("there are %d events", n)
		}
		for _, event := range read.Events {
			if event.Source == "" || event.ID.ID == "" || event.Doc["specversion"] != "1.0" || len(event.Doc) > maxAttributes {
				t.Fatalf("got %v", event)
			}
			again, err := json.Marshal(event.Doc)
			if err != nil {
				t.Fatal(err)
			}
			same, err := Read(headers(structured), again, whole(), 1, nil)
			if err != nil || same.Events[0].ID != event.ID || fmt.Sprint(same.Events[0].Doc) != fmt.Sprint(event.Doc) {
				t.Errorf("%s is read as %v, %v", again, same, err)
			}
		}
	})
}
