package hookstest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// Response is an answer, read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// TryRequest sends a request to anywhere. The error is that of a connection.
func TryRequest(method, url, body string, headers ...string) (Response, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return Response{resp.StatusCode, resp.Header, string(data)}, err
}

// Field reads one field of a JSON object in the body.
func (r Response) Field(t testing.TB, name string) any {
	t.Helper()
	var obj map[string]any
	if err := json.Unmarshal([]byte(r.Body), &obj); err != nil {
		t.Fatalf("the body is no JSON object: %v\n%s", err, r.Body)
	}
	return obj[name]
}

// WantError checks that the response is an error of the contract's shape, and that its message holds all the words.
func (r Response) WantError(t testing.TB, status int, words ...string) {
	t.Helper()
	if r.Status != status {
		t.Errorf("got status %d, want %d; body %s", r.Status, status, r.Body)
	}
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("got content type %q", got)
	}
	var obj map[string]any
	if err := json.Unmarshal([]byte(r.Body), &obj); err != nil {
		t.Errorf("the body is no JSON object: %v\n%s", err, r.Body)
		return
	}
	message, _ := obj["errorMessage"].(string)
	if len(obj) != 2 || obj["status"] != "error" || message == "" {
		t.Errorf("got error body %s", r.Body)
	}
	for _, word := range words {
		if !strings.Contains(message, word) {
			t.Errorf("the message %q does not speak of %q", message, word)
		}
	}
}

// AsJSON is v as JSON.
func AsJSON(t testing.TB, v any) string {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(buf.String())
}

// WantAdminError checks an error of the admin API, which has the shape of Caddy's own.
func (r Response) WantAdminError(t testing.TB, status int, words ...string) {
	t.Helper()
	message, _ := r.Field(t, "error").(string)
	if r.Status != status {
		t.Errorf("got status %d, want %d; body %s", r.Status, status, r.Body)
	}
	for _, word := range words {
		if !strings.Contains(message, word) {
			t.Errorf("the message %q does not speak of %q", message, word)
		}
	}
}

// WantJSON checks that the response is 200 with the same JSON, however it is written.
func (r Response) WantJSON(t testing.TB, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(r.Body), &a); err != nil {
		t.Fatalf("status %d, the body is no JSON: %v\n%s", r.Status, err, r.Body)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	if r.Status != 200 || !reflect.DeepEqual(a, b) {
		t.Errorf("got %d %s\nwant 200 %s", r.Status, r.Body, want)
	}
}

// sameAnswer are the headers that a repeated request is answered with as the first one was.
var sameAnswer = []string{"Content-Type", "Location", "Retry-After", "X-Service-Run-Id", "X-Service-Chat-Id", "X-Service-Schema-Repair-Attempts"}

// WantMembers checks some members of a JSON object. There may be others.
func (r Response) WantMembers(t testing.TB, want string) {
	t.Helper()
	var got, wanted map[string]any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(r.Body), &got); err != nil {
		t.Errorf("the answer is no JSON object: %d %s", r.Status, r.Body)
		return
	}
	for name := range wanted {
		if !reflect.DeepEqual(got[name], wanted[name]) {
			t.Errorf("%s is %v, want %v", name, got[name], wanted[name])
		}
	}
}

// WantReplay checks that an answer is the first one again, and says so.
func (r Response) WantReplay(t testing.TB, first Response) {
	t.Helper()
	if r.Status != first.Status || r.Body != first.Body {
		t.Errorf("got %d %s, want %d %s again", r.Status, r.Body, first.Status, first.Body)
	}
	for _, name := range sameAnswer {
		if got, want := r.Header.Get(name), first.Header.Get(name); got != want {
			t.Errorf("%s is %q, and was %q", name, got, want)
		}
	}
	if got := r.Header.Get("Idempotent-Replayed"); got != "true" {
		t.Errorf("Idempotent-Replayed is %q", got)
	}
}

// WantNew checks that an answer is not that of an earlier request.
func (r Response) WantNew(t testing.TB, status int) {
	t.Helper()
	if r.Status != status || r.Header["Idempotent-Replayed"] != nil {
		t.Errorf("got %d %v %s, want a new answer with %d", r.Status, r.Header["Idempotent-Replayed"], r.Body, status)
	}
}

// WantBody checks that a JSON answer has the given status and exactly the given fields, and returns their values.
func (r Response) WantBody(t testing.TB, status int, names ...string) map[string]string {
	t.Helper()
	if r.Status != status || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %d %s %s, want %d", r.Status, r.Header.Get("Content-Type"), r.Body, status)
	}
	values := make(map[string]string)
	for _, name := range names {
		value, ok := r.Field(t, name).(string)
		if !ok {
			t.Errorf("%s is not a string in %s", name, r.Body)
		}
		values[name] = value
	}
	if strings.Count(r.Body, `":`) != len(names) {
		t.Errorf("got %s, want the fields %v alone", r.Body, names)
	}
	return values
}
